"""The training graphs run on other versions of ONNX Runtime: those whose interpreters $EDGEENGINE_RUNTIMES lists (joined by `:`).

`make runtimes` makes environments of 1.20, 1.24 and the present one, and runs this.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import Trainer

PYTHONS = [p for p in os.environ.get("EDGEENGINE_RUNTIMES", "").split(":") if p]
pytestmark = pytest.mark.skipif(not PYTHONS, reason="no other runtimes: `make runtimes` makes them and runs this")
RUNNER = Path(__file__).with_name("other_runtime.py")


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


NAMES = ["mlp", "watch CNN", "ResNet, training BN", "MobileNet, training BN", "U-Net", "LSTM", "ViT"]


# AdamW's first step is lr times the gradient's sign: of one net whose gradients are none of them near 0.
@pytest.mark.parametrize(("name", "optimizer"), [*((n, "sgd") for n in NAMES), ("mlp", "adamw")])
def test_a_step_is_the_same_on_other_runtimes(name: str, optimizer: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.gradients.test_whole_nets import batches, start
    from tests.gradients.torch_nets import NETS

    module, shape = start(name).eval(), NETS[name][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.randn(2, *shape),), tmp_path / "net.onnx", input_names=["x"], dynamic_axes={"x": {0: "batch"}},
            dynamo=False, opset_version=17, training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
    request = Request(optimizer=optimizer, update_statistics=NETS[name][3])
    trainer = Trainer(build_trainable(tmp_path / "net.onnx", tmp_path / "net.edge", request, parts=1))
    x, label = batches(name)[0]
    state, folder = trainer.state, trainer.bundle.path
    fixed = {"lr": np.array(0.01, np.float32), "step": np.array(1, np.float32)}
    feeds = {"x": x, "label": label, **fixed, **state.parameters, **state.statistics, **state.slots}
    np.savez(folder / "feeds.npz", **{n.replace("/", "|"): a for n, a in feeds.items()})
    trainer.step({"x": x}, label, 0.01)
    for python in PYTHONS:
        done = subprocess.run([python, str(RUNNER), str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (python, done.stderr)
        with np.load(folder / "result.npz") as result:
            for p, array in trainer.state.parameters.items():
                np.testing.assert_allclose(result[f"{p}|next".replace("/", "|")], array, rtol=1e-4, atol=2e-5, err_msg=python)
