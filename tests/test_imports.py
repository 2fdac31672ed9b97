"""What a device installs is what is loaded: the graph, training and command-line libraries stay out."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "onnx",
    "onnx_ir",
    "torch",
    "scipy",
    "sklearn",
    "typer",
    "rich",
    "click",
    "google.protobuf",
    "edgeengine.graph",
    "edgeengine.gradients",
    "edgeengine.cli",
]


def loaded(code: str) -> set[str]:
    """The modules of a fresh interpreter after `code`."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import edgeengine",
        "import edgeengine.engine, edgeengine.simulation, edgeengine.planning, edgeengine.profiling",
        "import edgeengine.training",
        "import edgeengine.workload, edgeengine.scheduling, edgeengine.devices, edgeengine.io, edgeengine.testing",
        "import edgeengine\nfor name in edgeengine.__all__: getattr(edgeengine, name)",
    ],
)
def test_device_side_loads_nothing_heavy(code: str) -> None:
    found = loaded(code)
    assert "edgeengine" in found
    assert not [name for name in HEAVY if name in found]


def test_package_by_itself_loads_no_runtime() -> None:
    found = loaded("import edgeengine")
    assert not found & {"onnxruntime", "numpy", "msgspec", "edgeengine.engine"}


def test_command_line_loads_graph_only_when_a_command_needs_it() -> None:
    assert not loaded("import edgeengine.cli.main") & {"onnx", "edgeengine.graph", "onnxruntime"}
