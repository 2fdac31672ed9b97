"""Whole nets, exported by torch, trained for 20 steps by torch and by our graphs on the same batches."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the reference is torch (installed with converters)")

import torch
import torch.nn.functional as F

from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import Trainer
from tests.gradients.torch_nets import NETS

STEPS, BATCH = 20, 6


@pytest.fixture(scope="module", autouse=True)
def here() -> object:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


def start(name: str) -> torch.nn.Module:
    """No two parameters equal: the exporter would make one of them, which trains as one."""
    torch.manual_seed(0)
    module = NETS[name][0]()
    with torch.no_grad():
        for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
            tensor += 0.05 * torch.rand_like(tensor)
    return module


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each net once, in inference form, the batch free."""
    folder = tmp_path_factory.mktemp("nets")
    files = {}
    for name, (_, shape, _, _) in NETS.items():
        module = start(name).eval()
        example = torch.randint(0, 20, (2, *shape)) if name == "encoder" else torch.randn(2, *shape)
        files[name] = folder / f"{name.replace(' ', '_').replace(',', '')}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The exporter that folds constants: weights come out turned, joined and renamed. It is also the fast one.
            torch.onnx.export(
                module,
                (example,),
                files[name],
                input_names=["x"],
                dynamic_axes={"x": {0: "batch"}},
                dynamo=False,
                opset_version=17,
                training=torch.onnx.TrainingMode.PRESERVE,
            )
    return files


def batches(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    _, shape, classes, _ = NETS[name]
    rng = np.random.default_rng(1)
    made = []
    for _ in range(STEPS):
        x = rng.integers(0, 20, (BATCH, *shape)) if name == "encoder" else rng.standard_normal((BATCH, *shape)).astype(np.float32)
        label_shape = (BATCH, *shape[1:]) if name == "U-Net" else (BATCH,)
        made.append((x, rng.integers(0, classes, label_shape)))
    return made


def torch_losses(name: str, optimizer: str, lr: float) -> list[float]:
    module = start(name).train(NETS[name][3])
    matrices = [p for p in module.parameters() if p.ndim >= 2 and not _is_bare(module, p)]
    others = [p for p in module.parameters() if p.ndim < 2 or _is_bare(module, p)]
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    stepper = kind([{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=lr)
    losses = []
    for x, label in batches(name):
        stepper.zero_grad()
        loss = F.cross_entropy(module(torch.tensor(x)), torch.tensor(label))
        loss.backward()
        stepper.step()
        losses.append(float(loss.detach()))
    return losses


def _is_bare(module: torch.nn.Module, parameter: torch.nn.Parameter) -> bool:
    """Positions and class tokens are added, not multiplied with: they do not decay."""
    return any(p is parameter and n in ("place", "token") for n, p in module.named_parameters())


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_losses_are_those_of_torch(name: str, optimizer: str, exported: dict[str, Path], tmp_path: Path) -> None:
    lr = 0.05 if optimizer == "sgd" else 0.002
    request = Request(train="all", optimizer=optimizer, weight_decay=0.01, update_statistics=NETS[name][3])
    trainer = Trainer(build_trainable(exported[name], tmp_path / "net.edge", request, parts=1))
    losses = [trainer.step({"x": x}, label, lr).loss for x, label in batches(name)]
    np.testing.assert_allclose(losses, torch_losses(name, optimizer, lr), rtol=1e-4)
