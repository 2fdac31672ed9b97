"""What every ONNX Runtime session here has in common: known options, no thread of its own, the nodes it was assigned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnxruntime as ort
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Strict, load_providers, require_whole
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.devices.providers.ort import SESSION_KEYS, create, placement_of, session_options
from edgeengine.errors import DeviceError, UserError
from edgeengine.spec import Fallback, Latency, Placement, Step

CPU, NPU = "CPUExecutionProvider", "SomeExecutionProvider"


def test_our_table_of_session_keys_is_that_of_the_runtime() -> None:
    """A misspelt row of ours would be accepted, and do nothing: each is a string in the library."""
    (library,) = Path(ort.__file__).parent.glob("capi/onnxruntime_pybind11_state*")
    binary = library.read_bytes()
    assert [key for key in SESSION_KEYS if key.encode() not in binary] == []


@pytest.mark.parametrize("key", ["session.intra_op.alow_spinning", "session.disable_prepackin", "nonsense"])
def test_a_misspelt_session_key_is_refused_with_the_nearest(key: str) -> None:
    with pytest.raises(UserError, match="did you mean" if key != "nonsense" else "known: "):
        session_options(entries={key: "1"})


def test_options_are_for_processors_that_exist() -> None:
    with pytest.raises(UserError, match=r"'npu-qn' is unknown; did you mean 'npu-qnn'"):
        load_providers(options={"npu-qn": {}})


def test_the_cpu_takes_every_node_and_tells_which(bundles: dict[str, Bundle]) -> None:
    provider = CpuProvider()
    processor = provider.discover((0,))[0]
    whole = bundles["scale"].manifest.whole
    step = Step(whole.name, 0, whole.stop, processor.name, Latency.constant(1))
    placement = Strict(provider).load(bundles["scale"], step, processor).placement
    assert placement == Placement(CPU, {CPU: whole.nodes})


def session_with(*parts: tuple[str, list[tuple[str, str, str]]]) -> ort.InferenceSession:
    """A session that says it assigned (provider, [(operator, domain, name)]) so."""

    def of(provider: str, nodes: list[tuple[str, str, str]]) -> SimpleNamespace:
        made = [SimpleNamespace(op_type=op, domain=domain, name=name) for op, domain, name in nodes]
        return SimpleNamespace(ep_name=provider, get_nodes=lambda: made)

    return SimpleNamespace(get_provider_graph_assignment_info=lambda: [of(*p) for p in parts])


def test_placement_counts_groups_and_explains() -> None:
    """E2: three nodes on the accelerator, one and a contributed one on the CPU, two copies."""
    session = session_with(
        (NPU, [("Conv", "", "a"), ("Conv", "com.ms.internal.nhwc", "b_token_1"), ("Relu", "", "")]),
        (CPU, [("Erf", "", "e"), ("Gelu", "com.microsoft", "")]),
        (CPU, [("Erf", "", "f")]),
    )
    log = [
        "Validation FAILED for 1 nodes in OrtNodeUnit (Erf) :\n"
        "\tOperator type: Erf Node name: e Node index: 3\n"
        "\tREASON : No Erf here.\n",
        "Validation PASSED for 1 nodes in OrtNodeUnit (Conv) :\n\tOperator type: Conv Node name: a Node index: 0\n",
        "2 Memcpy nodes are added to the graph main_graph for SomeExecutionProvider. It might have negative impact on …",
        "something else",
    ]
    assert placement_of(session, NPU, log) == Placement(
        NPU, {NPU: 3, CPU: 3},
        (
            Fallback("Erf", ("e",), CPU, "No Erf here."), Fallback("com.microsoft:Gelu", ("unnamed com.microsoft:Gelu",), CPU),
            Fallback("Erf", ("f",), CPU),
        ),
        copies=2,
    )  # fmt: skip


def test_strict_mode_names_the_operators() -> None:
    require_whole(Placement(NPU, {NPU: 3}), "s0_1")
    fallen = (Fallback("Erf", ("a", "b", "c", "d"), CPU, "no such kernel"), Fallback("Gelu", ("g",), CPU))
    with pytest.raises(DeviceError) as e:
        require_whole(Placement(NPU, {NPU: 3, CPU: 5}, fallen), "s0_1 on npu")
    ops = f"Erf (a, b, c, …) to {CPU}: no such kernel; Gelu (g) to {CPU};"
    assert str(e.value).startswith(f"s0_1 on npu: strict, and 5 of 8 nodes fell back from {NPU}: {ops}")


def test_a_failing_session_is_not_retried_on_the_cpu(models: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime's own retry prints a line and answers from another provider."""

    with pytest.raises(DeviceError, match="cannot load it"):
        create(models["scale"], session_options(entries={"session.intra_op_thread_affinities": "nonsense"}, threads=2), [CPU])
    assert "retrying" not in "".join(capfd.readouterr())
