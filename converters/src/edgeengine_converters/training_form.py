"""Finds what an exported program of torch still does as in training; ONNX nodes are checked by edgeengine as well.

Looked at before the export: the exporter may split such an operator into plain ones, which no longer tell.
"""

from torch.export import ExportedProgram

from edgeengine_converters.errors import ConversionError

_ARGUMENT_THAT_TRAINS = {
    "batch_norm": "training", "native_batch_norm": "training", "dropout": "train", "alpha_dropout": "train",
    "feature_dropout": "train", "feature_alpha_dropout": "train", "native_dropout": "train",
    "_native_batch_norm_legit": "training", "_native_batch_norm_legit_functional": "training",
}  # fmt: skip
"""Operators of torch that do something else in training, and the argument that says so."""


def refuse_training(program: ExportedProgram, where: str) -> None:
    """Raise ConversionError, naming the modules, where dropout drops or a batch's own statistics are used."""
    found = []
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        flag = _ARGUMENT_THAT_TRAINS.get(schema.name.rpartition("::")[2]) if schema is not None else None
        if flag is None:
            continue
        given = {a.name: v for a, v in zip(schema.arguments, node.args, strict=False)} | dict(node.kwargs)
        if given.get(flag):
            stack = [entry[0] for entry in node.meta.get("nn_module_stack", {}).values()]
            found.append(
                f"{stack[-1] if stack and stack[-1] else node.name} ({schema.name.rpartition('::')[2]})"
            )
    if found:
        raise ConversionError(
            f"{', '.join(found[:3])} in training form",
            where=where,
            fix="export it in inference mode: module.eval(), and training=self.training for functional dropout",
        )
