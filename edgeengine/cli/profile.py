"""`edgeengine profile`: measure every candidate subgraph of a model on the processors of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Bar, Json, State, note, print_json, progress_bar
from edgeengine.cli.options import OPTION_HELP, fit_input, parse_inputs, parse_options, parse_shapes

if TYPE_CHECKING:
    import numpy as np

    from edgeengine.bundle import Bundle
    from edgeengine.devices.providers.base import Tensors
    from edgeengine.spec import MachineRow, ProfileRow

EXAMPLES = (
    "edgeengine profile model.edge",
    "edgeengine profile model.onnx --shape x=1x3x224x224 --processor cpu0",
    "edgeengine profile model.edge --width 0.01 --seconds 60 --again",
    "edgeengine profile model.edge --device snapdragon-8-gen-3",
    "edgeengine profile big.edge --share 0.07        (measure the most informative 7 %, predict the rest)",
)


def command(
    model: Annotated[str, typer.Argument(help="A bundle or an .onnx file.")],
    device: Annotated[str | None, typer.Option(help="Predict for a described device instead of measuring here.")] = None,
    processor: Annotated[list[str] | None, typer.Option(help="Only on this processor; repeat for more.")] = None,
    option: Annotated[list[str] | None, typer.Option(help=OPTION_HELP)] = None,
    shape: Annotated[list[str] | None, typer.Option(help="For an .onnx: fix an input, name=1x3x224x224.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to run with: name=16000, or FILE.npz.")] = None,
    seconds: Annotated[float, typer.Option(help="Time to measure for, at most.")] = 5.0,
    width: Annotated[float, typer.Option(help="Enough when the median is known to within this share of it (95 %).")] = 0.02,
    again: Annotated[bool, typer.Option("--again", help="Measure also what is known to that width.")] = False,
    share: Annotated[float | None, typer.Option(help="Measure only this share of the candidates, predict the others.")] = None,
    machine: Annotated[bool, typer.Option("--machine", help="Measure the machine itself anew.")] = False,
    period_ms: Annotated[float | None, typer.Option(help="Also measure the whole model at this period.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse parts of which nodes fall back to another provider.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Also write the rows as JSON.")] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Measure latencies, check outputs, say what bounds each part; rows are kept as they come, for planning. Or predict them.

    Interrupted, it goes on where it was when it is run again (with --share it begins anew).
    """
    from edgeengine.cli.described import known_device, predict
    from edgeengine.cli.profile_here import Measuring
    from edgeengine.cli.resolve import choose_processors
    from edgeengine.devices.providers import load_providers
    from edgeengine.errors import UserError
    from edgeengine.profiling import ProfileStore
    from edgeengine.state import state_folder

    if not 1e-3 <= seconds <= 1e6 or (period_ms is not None and not 0.01 <= period_ms <= 1e6):
        raise UserError("profile: --seconds must be between 0.001 and 1e6, --period-ms between 0.01 and 1e6")
    if device is not None and (share is not None or period_ms is not None or again or machine or strict or option):
        raise UserError(
            "profile: --device predicts; --share, --period-ms, --again, --machine, --strict, --option are for measuring"
        )
    if not 0 < width < 1:
        raise UserError("profile: --width must be between 0 and 1; 0.02 is 2 % of the median to either side")
    folder = state_folder(state)
    if device is not None:
        described = known_device(device, processor)  # said before anything is built
        with progress_bar() as bar:
            bundle = _open(model, parse_shapes(shape), parse_inputs(input), folder, bar)
        predict(bundle, described, processor, output, json)
        return
    processors, given = choose_processors(processor, options=parse_options(option)), parse_inputs(input)
    providers, store = load_providers(strict=strict), ProfileStore(folder / "profile.sqlite")
    try:
        with progress_bar() as bar:
            bundle = _open(model, parse_shapes(shape), given, folder, bar)
            inputs = _inputs(bundle, given)
            here = Measuring(processors, providers, store, seconds, width, bar)
            about = here.machine(machine)
            measure = here.back_to_back(bundle, inputs, again) if share is None else here.within_share(bundle, inputs, share)
            rows = measure + ([] if period_ms is None else here.at_period(bundle, inputs, measure, period_ms))
    finally:
        for provider in providers.values():
            provider.close()
    _tell(bundle, rows, about, output, json)
    if strict:
        _refuse_fallen(rows)


def _tell(bundle: Bundle, rows: list[ProfileRow], about: list[MachineRow], output: str | None, json: bool) -> None:
    """Write and print what was measured. Raises DeviceError when no processor runs any of it right."""
    from edgeengine.cli.profile_table import bounds, print_profile, remarks
    from edgeengine.devices import device_id
    from edgeengine.errors import DeviceError
    from edgeengine.profiling import export_json
    from edgeengine.reporting import write_file

    if output is not None:
        write_file(Path(output), export_json(rows, about)[0])
    named = {m.name: m for m in about}
    if json:
        document = {"device": device_id(), "bundle": str(bundle.path), "hash": bundle.hash, "rows": rows}
        print_json(document | {"machine": about, "bounds": bounds(bundle.manifest, rows, named)})
    else:
        for condition in dict.fromkeys(r.condition for r in rows):
            print_profile(bundle.manifest, device_id(), condition, [r for r in rows if r.condition == condition], named)
    for remark in remarks(rows):
        note(remark)
    if not any(r.usable for r in rows):
        raise DeviceError(
            f"no processor runs {bundle.manifest.name} right: {rows[0].processor} {rows[0].verdict}: {rows[0].reason}"
        )


def _refuse_fallen(rows: Sequence[ProfileRow]) -> None:
    """Raises DeviceError for what could not be loaded whole, now or when what is known was measured."""
    from edgeengine.devices.providers import require_whole
    from edgeengine.errors import DeviceError

    for row in rows:
        where = f"{row.subgraph} on {row.processor}"
        if row.verdict == "failed":
            raise DeviceError(f"{where}: {row.reason}")
        if row.placement is not None:
            require_whole(row.placement, where)


def _open(
    model: str, shapes: dict[str, tuple[int, ...]], given: dict[str, np.ndarray], folder: Path, bar: Bar
) -> Bundle:  # fmt: skip
    from edgeengine.bundle import open_bundle
    from edgeengine.cli.resolve import cached_build
    from edgeengine.errors import UserError

    if not Path(model).is_dir():
        return cached_build(Path(model), folder, shapes, given, bar)
    if shapes:
        raise UserError("profile: --shape is for an .onnx; a bundle has the shapes it was built with")
    return open_bundle(model)


def _inputs(bundle: Bundle, given: dict[str, np.ndarray]) -> Tensors:
    """The values given, random ones for the rest."""
    from edgeengine.engine.dataflow import run_inputs
    from edgeengine.errors import UserError
    from edgeengine.io import make_source

    specs = run_inputs(bundle)
    for spec in specs:
        if not spec.is_static:
            raise UserError(f"profile: input {spec.name!r} has shape {spec.shape}; rebuild the bundle with --shape")
    rest = [s for s in specs if s.name not in given]
    inputs = {s.name: fit_input(given[s.name], s) for s in specs if s.name in given}
    return inputs | make_source("random:0", rest).read(0, 0)
