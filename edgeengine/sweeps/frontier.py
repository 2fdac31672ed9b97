"""The feasibility frontier of a sweep, drawn: which settings meet their deadlines, and by how much the others miss them."""

from __future__ import annotations

from collections.abc import Sequence

from edgeengine.errors import UserError
from edgeengine.sweeps.point import Answer
from edgeengine.sweeps.space import Axis


def worst_miss_rate(answer: Answer) -> float:
    """Of the task that misses most; 1 where nothing can run it."""
    rows = answer["tasks"]
    assert isinstance(rows, list)
    return max((float(r["miss_rate"]) for r in rows), default=1.0)


def frontier_html(title: str, axes: Sequence[Axis], answers: Sequence[Answer]) -> bytes:
    """One page that needs no network: the worst miss rate along the last numeric axis, a line for each combination of the others.

    Raises UserError without a numeric axis, or without plotly.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as e:
        raise UserError("drawing a sweep needs plotly: pip install 'edgeengine[report]'") from e
    along = next((a for a in reversed(axes) if a.numeric), None)
    if along is None:
        raise UserError("a plot needs a numeric key to run along, such as --sweep rate=0.5:2:7")
    lines: dict[str, list[tuple[float, float, bool]]] = {}
    for answer in answers:
        point = dict(answer["point"])  # type: ignore[call-overload]
        x = point.pop(along.key)
        name = ", ".join(f"{k} {v}" for k, v in point.items()) or "all"
        lines.setdefault(name, []).append((x, worst_miss_rate(answer), bool(answer["feasible"])))
    figure = go.Figure()
    for name, line in lines.items():
        line.sort()
        symbols = ["circle" if feasible else "x" for _, _, feasible in line]
        x, y = [p[0] for p in line], [100 * p[1] for p in line]
        figure.add_scatter(x=x, y=y, name=name, mode="lines+markers", marker={"symbol": symbols, "size": 9})
    figure.update_layout(
        title=f"{title} (circle: feasible, cross: not)", xaxis_title=along.key, yaxis_title="worst task: jobs missed, %",
        template="plotly_white",
    )  # fmt: skip
    return str(figure.to_html(include_plotlyjs=True, full_html=True, div_id="frontier")).encode()
