"""A device that nobody described, from five of its measurements: how well the rest of them are met."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from edgeengine.devices import list_profiles
from edgeengine.planning.calibration import calibrated
from edgeengine.profiling.anchors import Anchor
from edgeengine.spec.device import DeviceProfile, ProcessorProfile

ANCHORS = ("resnet18", "mobilenet_v2", "squeezenet", "resnet50", "efficientnet_b0", "shufflenet_v2")
TWINS = ({"rockchip/rk3566", "rockchip/rk3568"}, {"qualcomm/snapdragon-8-gen-2", "qualcomm/snapdragon-8-gen-3"})  # share tables
Measured = tuple[DeviceProfile, ProcessorProfile]


def anchors_of(new: ProcessorProfile, like: ProcessorProfile, precision: str) -> list[Anchor]:
    """Up to five of ANCHORS that both have."""
    mine, other = new.speed[precision].models, like.speed[precision].models
    keys = [next((k for k in sorted(mine) if name in k and k in other), None) for name in ANCHORS]
    return [Anchor(like.name, precision, 1e9, mine[k], "", model=k) for k in keys if k is not None][:5]


def spread(anchors: list[Anchor], like: ProcessorProfile, precision: str) -> float:
    return float(np.std([np.log(like.speed[precision].models[a.model] / a.latency_ms) for a in anchors]))


def test_known_models_on_a_new_device_from_five_anchors() -> None:
    """Median errors over devices; the like is the one whose anchors are most nearly proportional. A device's own profile and its
    twins' are no likes.
    """
    all_ = [(d, p) for d in list_profiles() for p in d.processor]
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for device, new in all_:
        for precision, speed in new.speed.items():
            if speed.measured == 0 or len(speed.models) < 10:
                continue
            tried = []
            for other, like in all_:
                theirs = like.speed.get(precision)
                if other.name == device.name or {device.name, other.name} in TWINS or like.kind != new.kind or theirs is None:
                    continue
                if theirs.measured and theirs.runtime == speed.runtime and like.threads == new.threads:
                    anchors = anchors_of(new, like, precision)
                    if len(anchors) >= 4:
                        tried.append((spread(anchors, like, precision), other, like, anchors))
            if not tried:
                continue
            _, other, like, anchors = min(tried, key=lambda t: t[0])
            made = next(p for p in calibrated(anchors, other, "new", "anchors").processor if p.name == like.name)
            found, used = made.speed[precision].models, {a.model for a in anchors}
            left = [k for k in speed.models if k in found and k not in used]
            if len(left) >= 4:
                errors[new.kind, precision].append(float(np.median([abs(found[k] / speed.models[k] - 1) for k in left])))
    medians = {key: float(np.median(v)) for key, v in errors.items() if len(v) >= 3}
    assert medians["npu", "float"] <= 0.06 and medians["cpu", "float"] <= 0.10 and medians["gpu", "float"] <= 0.18
