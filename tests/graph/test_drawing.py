"""The drawing: every unit once, in the colour of its part, nothing on top of anything else; and clear refusals."""

from __future__ import annotations

import builtins
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.graph import inspect_model
from tests.graph.onnxes import model, node, x_in
from tests.models import model_file

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]
SVG = "{http://www.w3.org/2000/svg}"


def boxes(file: Path) -> list[tuple[float, float, float, float, str, str]]:
    """(x, y, width, height, colour, title) of every box with a title."""
    found = []
    for box in ElementTree.parse(file).getroot().iter(f"{SVG}rect"):
        title = box.find(f"{SVG}title")
        if title is not None:
            x, y, width, height = (float(box.attrib[k]) for k in ("x", "y", "width", "height"))
            found.append((x, y, width, height, box.attrib["fill"], title.text or ""))
    return found


def drawn(path: Path, **options: Any) -> list[tuple[float, float, float, float, str, str]]:
    pytest.importorskip("drawsvg", reason="the extra [draw] is not installed")
    pytest.importorskip("fast_sugiyama", reason="the extra [draw] is not installed")
    target = path.with_suffix(".svg") if path.parent.name.startswith("test") else options.pop("target")
    inspect_model(path, svg=target, **options)
    return boxes(target)


def test_every_unit_has_a_box_of_its_own(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Exp", ["a"], ["c"]), node("Add", ["b", "c"], ["d"]),
             node("Sum", ["x", "a", "d"], ["y"]), node("Tanh", ["z"], ["w"])]  # fmt: skip
    found = drawn(saved(model(nodes, [x_in("N", 4), x_in("N", 4, name="z")], ["y", "w", "b"])), parts=3)
    assert len(found) == 6 + 2 + 3
    for i, (x, y, width, height, *_) in enumerate(found):
        assert x >= 0 and y >= 0
        assert not any(abs(x - a) < width and abs(y - b) < height for a, b, *_ in found[i + 1 :])
    colours = {title.splitlines()[0]: colour for *_, colour, title in found if title.startswith("part")}
    assert set(colours) == {"part 0", "part 1", "part 2"} and len(set(colours.values())) == 3
    assert any("Sum #4" in title and "y float32[1x4]" in title for *_, title in found)


@pytest.mark.parametrize("short", ["silero", "ocr-direction"])
def test_a_real_model(short: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"shapes": {"x": (1, 3, 48, 192)}}
    if short == "silero":
        options = {"shapes": {"input": (1, 576), "state": (2, 1, 128)}, "fix": {"sr": np.array(16000)}}
    found = drawn(model_file(short), target=tmp_path / "m.svg", parts=5, **options)
    assert len({(x, y) for x, y, *_ in found}) == len(found) > 40
    assert [p.name for p in tmp_path.iterdir()] == ["m.svg"]


def test_without_the_packages(saved: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name in ("drawsvg", "fast_sugiyama"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    path = saved(model([node("Relu", ["x"], ["y"])], [x_in("N", 4)], ["y"]))
    with pytest.raises(UserError, match=r"pip install 'edgeengine\[draw\]'"):
        inspect_model(path, svg=path.with_suffix(".svg"))
    assert not path.with_suffix(".svg").exists()


def test_a_place_that_cannot_be_written(saved: Save, tmp_path: Path) -> None:
    path = saved(model([node("Relu", ["x"], ["y"])], [x_in("N", 4)], ["y"]))
    pytest.importorskip("drawsvg", reason="the extra [draw] is not installed")
    with pytest.raises(UserError, match="cannot be written"):
        inspect_model(path, svg=tmp_path / "absent" / "m.svg")
