"""The report as one HTML file that needs no network (jinja2, plotly)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeengine.errors import UserError
from edgeengine.reporting.report.causes import Explanation, explain
from edgeengine.reporting.report.figures import is_clean, latencies, shown_spans, timeline, utilisation
from edgeengine.reporting.report.run import Run

_TEMPLATE = Path(__file__).with_name("report.html.j2")


def report_html(run: Run, title: str) -> bytes:
    """The page. Raises UserError where the packages it is drawn with are missing."""
    try:
        from jinja2 import Environment
        from plotly.offline import get_plotlyjs
    except ImportError as e:
        raise UserError(f"a report needs {e.name}: pip install 'edgeengine[report]'") from e
    rows = run.document["tasks"]
    about = ", ".join(f"{k} {run.document[k]}" for k in ("mode", "device", "policy", "seconds", "seed") if k in run.document)
    page = Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE.read_text()).render(
        title=title, about=about, clean=is_clean(run), verdict=_verdict(run), reasons=_reasons(explain(run)),
        plotly=get_plotlyjs(), timeline=_div(timeline(run), "timeline"), latencies=_div(latencies(run), "latencies"),
        columns=[c.replace("_", " ") for c in rows[0]] if rows else [], rows=[[_cell(k, v) for k, v in r.items()] for r in rows],
        processors=_processors(run), cut=_cut(run), learned=_learned(run),
    )  # fmt: skip
    return page.encode()


def _div(figure: Any, name: str) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name))


def _verdict(run: Run) -> str:
    met, released = len(run.jobs) - len(run.missed), len(run.jobs)
    if not run.missed:
        return f"All {released} jobs met their deadlines."
    worst = max(run.document["tasks"], key=lambda r: r["miss_rate"])
    return f"{released - met} of {released} jobs missed; worst: {worst['task']}, {worst['miss_rate']:.1%} of its jobs."


def _reasons(explanations: list[Explanation]) -> list[dict[str, object]]:
    """Alike ones together, the most frequent first, each with an example."""
    groups: dict[tuple[str, str], list[Explanation]] = {}
    for e in explanations:
        groups.setdefault((e.job.task, e.reason), []).append(e)
    return [
        {"task": task, "reason": reason, "count": len(group), "index": group[0].job.index, "sentence": group[0].sentence}
        for (task, reason), group in sorted(groups.items(), key=lambda g: -len(g[1]))[:20]
    ]


def _processors(run: Run) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "busy": f"{sum(tasks.values()):.0%}",
            "tasks": ", ".join(f"{task} {share:.1%}" for task, share in sorted(tasks.items(), key=lambda t: -t[1])),
        }
        for name, tasks in utilisation(run).items()
        if tasks
    ]


def _learned(run: Run) -> list[dict[str, object]]:
    """Training progress: a row per version, or one for a task that published none."""
    rows: list[dict[str, object]] = []
    for task in run.document.get("learned", ()):
        losses = [task["loss_first"], task["loss_last"]]
        loss = " to ".join(f"{x:.3g}" for x in losses if x is not None)
        for version in task["versions"] or [{}]:
            guard = (f"{d} {version.get('before', {}).get(d, 0):.3g} to {x:.3g}" for d, x in version.get("after", {}).items())
            name = version.get("name", "none published")
            serves = "serves" if name == task["serving"] else version.get("cause", "")
            rows.append(
                {"task": task["task"], "steps": version.get("step", task["steps"]), "loss": loss, "version": name,
                 "guard": ", ".join(guard), "serves": serves}
            )  # fmt: skip
    return rows


def _cut(run: Run) -> str:
    spans = shown_spans(run)
    if len(spans) == len(run.spans):
        return ""
    return f"{len(spans)} of {len(run.spans)} are shown, from {spans[0].start_ns / 1e9:.1f} to {spans[-1].end_ns / 1e9:.1f} s"


def _cell(key: str, value: object) -> str:
    if value is None:
        return "-"
    if key.startswith("miss_"):
        return f"{value:.1%}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
