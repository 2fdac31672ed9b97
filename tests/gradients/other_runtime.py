"""Run by the interpreter of another onnxruntime: one step of the training graphs in FOLDER on its feeds.npz, into result.npz.

Imports nothing of ours.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

folder = Path(sys.argv[1])
with np.load(folder / "feeds.npz") as archive:
    tensors = {n.replace("|", "/"): a for n, a in archive.items()}  # a slash would be a folder in the archive
for file in ("train_gradient.onnx", "train_optimizer.onnx"):
    session = ort.InferenceSession(str(folder / file), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    tensors.update(zip(names, session.run(names, {i.name: tensors[i.name] for i in session.get_inputs()})))
np.savez(folder / "result.npz", version=np.array(ort.__version__), **{n.replace("/", "|"): a for n, a in tensors.items()})
