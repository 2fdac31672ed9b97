"""Draw a model as SVG: a box per unit in the colour of its part, an edge per tensor, what crosses a cut in bold.

Layout and SVG come from two packages of the extra `[draw]`, imported here only: fast-sugiyama places the boxes in layers
and routes the edges, drawsvg writes the file.
"""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeengine.errors import UserError
from edgeengine.graph.dataflow import bodies, walk
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.study import Study
from edgeengine.spec.tensor import TensorSpec, format_shape

_WIDTH, _HEIGHT = 150, 34  # a box
_ACROSS, _DOWN, _MARGIN = 190.0, 74.0, 60.0
_MOST_LABEL = 22


def draw_svg(seen: Study, segmentation: Segmentation, file: Path) -> None:
    """Write the drawing to `file`, whole or not at all.

    Raises UserError where the packages are not installed, or the file cannot be written.
    """
    try:
        import drawsvg
        from fast_sugiyama import from_edges
    except ImportError as e:
        raise UserError(f"drawing needs packages that are not installed ({e.name}): pip install 'edgeengine[draw]'") from e
    text = _drawing(seen, segmentation, drawsvg, from_edges).as_svg()
    aside = file.with_name(f".{file.name}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(file)
    except OSError as e:
        raise UserError(f"{file}: cannot be written ({e.strerror}); choose another place") from e
    finally:
        aside.unlink(missing_ok=True)


def _drawing(seen: Study, segmentation: Segmentation, drawsvg: Any, from_edges: Any) -> Any:
    flow, count = seen.flow, len(seen.units)
    part_of = {u: k for k, units in enumerate(seen.cuts.unit_of(segmentation)) for u in units}
    names = [*flow.inputs, *dict.fromkeys(flow.outputs)]
    ends = {("in", t): count + i for i, t in enumerate(flow.inputs)}
    ends |= {("out", t): count + len(flow.inputs) + i for i, t in enumerate(dict.fromkeys(flow.outputs))}
    edges = _edges(seen, ends)
    placed, routes = _layout(from_edges, edges, count + len(names))
    right, bottom = (max((xy[i] for xy in placed.values()), default=0.0) for i in (0, 1))
    drawing = drawsvg.Drawing(right + 2 * _MARGIN + _WIDTH, bottom + 2 * _MARGIN + 40, font_family="sans-serif")
    drawing.append(drawsvg.Rectangle(0, 0, "100%", "100%", fill="white"))
    for (a, b), tensors in edges.items():
        crossing = a in part_of and b in part_of and part_of[a] != part_of[b]
        path = drawsvg.Path(stroke="#222" if crossing else "#999", stroke_width=2.5 if crossing else 1, fill="none")
        points = [_center(placed[p]) for p in (a, *routes.get((a, b), ()), b)]
        path.M(*points[0])
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            path.C(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1)
        path.append_title("\n".join(_tensor(t, seen.tensors.at.get(t)) for t in tensors))
        drawing.append(path)
    colours = [_colour(k, len(segmentation.segments)) for k in range(len(segmentation.segments))]
    for u in range(count):
        _box(drawsvg, drawing, placed[u], _label(seen, u), _title(seen, u, part_of[u]), colours[part_of[u]])
    for (kind, tensor), key in ends.items():
        if key in placed:
            text = _tensor(tensor, seen.tensors.at.get(tensor))
            _box(drawsvg, drawing, placed[key], tensor, f"{'input' if kind == 'in' else 'output'} {text}", "#ffffff")
    for k, colour in enumerate(colours):
        drawing.append(drawsvg.Rectangle(10 + 80 * k, 8, 14, 14, fill=colour, stroke="#444"))
        drawing.append(drawsvg.Text(f"part {k}", 12, 30 + 80 * k, 20))
    return drawing


def _edges(seen: Study, ends: dict[tuple[str, str], int]) -> dict[tuple[int, int], list[str]]:
    """(from, to) -> the tensors that pass, by unit index, graph inputs and outputs included."""
    maker = {t: u for u, unit in enumerate(seen.units) for t in unit.writes}
    edges: dict[tuple[int, int], list[str]] = {}
    for u, unit in enumerate(seen.units):
        for tensor in sorted(unit.reads):
            source = maker.get(tensor, ends.get(("in", tensor)))
            if source is not None:
                edges.setdefault((source, u), []).append(tensor)
    for (kind, tensor), key in ends.items():
        source = maker.get(tensor, ends.get(("in", tensor)))
        if kind == "out" and source is not None:
            edges.setdefault((source, key), []).append(tensor)
    return edges


def _layout(
    from_edges: Any, edges: dict[tuple[int, int], list[str]], count: int
) -> tuple[dict[int, tuple[float, float]], dict[tuple[int, int], list[int]]]:
    """(place of every box and bend, the bends of each edge). Layers go down; components stand side by side."""
    placed: dict[int, tuple[float, float]] = {}
    following: dict[int, list[int]] = {}
    offset, bends = 0.0, count
    found = from_edges(list(edges), vertex_spacing=1, dummy_vertices=True) if edges else []
    for positions, *_, links in found:
        # Bends are numbered per component: give them numbers of their own.
        own = {n for n, _ in positions if n >= count or n not in {k for e in edges for k in e}}
        rename = {n: bends + i for i, n in enumerate(sorted(own))}
        bends += len(rename)
        top = max(y for _, (_, y) in positions)
        left, right = min(x for _, (x, _) in positions), max(x for _, (x, _) in positions)
        for n, (x, y) in positions:
            placed[rename.get(n, n)] = (offset + (x - left) * _ACROSS, (top - y) * _DOWN)
        for a, b in links or ():
            following.setdefault(rename.get(a, a), []).append(rename.get(b, b))
        offset += (right - left + 1) * _ACROSS
    for n in range(count):
        if n not in placed and not any(n in e for e in edges):
            placed[n] = (offset, 0.0)
            offset += _ACROSS
    return placed, {edge: _bends(edge, following, count) for edge in edges}


def _bends(edge: tuple[int, int], following: dict[int, list[int]], count: int) -> list[int]:
    """The bends from one box to another: each bend has one way on."""
    for first in following.get(edge[0], ()):
        path, at = [], first
        while at >= count:
            path.append(at)
            at = following[at][0]
        if at == edge[1]:
            return path
    return []


def _box(drawsvg: Any, drawing: Any, place: tuple[float, float], label: str, title: str, colour: str) -> None:
    x, y = _center(place)
    box = drawsvg.Rectangle(x - _WIDTH / 2, y - _HEIGHT / 2, _WIDTH, _HEIGHT, rx=5, fill=colour, stroke="#444")
    box.append_title(title)
    drawing.append(box)
    shown = label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…"
    drawing.append(drawsvg.Text(shown, 12, x, y, center=True, style="pointer-events:none"))


def _center(place: tuple[float, float]) -> tuple[float, float]:
    return place[0] + _MARGIN + _WIDTH / 2, place[1] + _MARGIN + _HEIGHT / 2


def _label(seen: Study, unit: int) -> str:
    nodes = [seen.flow.nodes[n] for n in seen.units[unit].nodes]
    inside = sum(1 for n in nodes for body in bodies(n) for _ in walk(body.node))
    kinds = " ".join(dict.fromkeys(n.op_type for n in nodes))
    return f"{kinds} (+{inside})" if inside else kinds


def _title(seen: Study, unit: int, part: int) -> str:
    """What a pointer resting on the box is shown."""
    flow, nodes = seen.flow, seen.units[unit].nodes
    macs, _ = seen.macs(nodes)
    lines = [flow.label(n) for n in nodes[:12]] + ([f"… {len(nodes) - 12} more"] if len(nodes) > 12 else [])
    made: Sequence[str] = [t for n in nodes for t in flow.writes[n]][:8]
    return "\n".join(
        [f"part {part}", *lines, f"{macs:,} MACs" if macs else "no MACs", *(_tensor(t, seen.tensors.at.get(t)) for t in made)]
    )


def _tensor(name: str, spec: TensorSpec | None) -> str:
    return name if spec is None else f"{name} {spec.dtype}[{format_shape(spec.shape)}]"


def _colour(index: int, count: int) -> str:
    red, green, blue = colorsys.hls_to_rgb(index / max(1, count), 0.85, 0.7)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
