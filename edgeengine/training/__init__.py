"""Device side: training from a bundle, with ONNX Runtime, numpy and safetensors alone; versions and where they are kept."""

from edgeengine.training.finetuning import FinetuneResult, finetune
from edgeengine.training.graphs import StepRefused, StepResult
from edgeengine.training.placed import On
from edgeengine.training.serving import inference_session
from edgeengine.training.step import MicroStep, PendingStep
from edgeengine.training.trainer import Evaluation, Trainer

__all__ = [
    "Evaluation",
    "FinetuneResult",
    "MicroStep",
    "On",
    "PendingStep",
    "StepRefused",
    "StepResult",
    "Trainer",
    "finetune",
    "inference_session",
]
