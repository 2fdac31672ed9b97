"""The drawings of a report (plotly): a timeline per processor, latencies against deadlines, who used which processor."""

from __future__ import annotations

from collections import Counter
from typing import Any

from edgeengine.reporting.report.run import MET, JobRecord, Run, Span

MOST_SPANS = 8000  # a browser draws so many bars without trouble
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#72b7b2", "#eeca3b", "#ff9da6")
MISSED = "#d62728"


def colours(run: Run) -> dict[str, str]:
    return {row["task"]: COLOURS[i % len(COLOURS)] for i, row in enumerate(run.document["tasks"])}


def shown_spans(run: Run) -> list[Span]:
    """All spans, or of a long run those about its first misses (of a clean one its beginning)."""
    if len(run.spans) <= MOST_SPANS:
        return run.spans
    ordered = sorted(run.spans, key=lambda s: s.start_ns)
    about = run.missed[0].release_ns if run.missed else 0
    first = next((i for i, s in enumerate(ordered) if s.end_ns >= about), 0)
    begin = max(min(first - MOST_SPANS // 8, len(ordered) - MOST_SPANS), 0)
    return ordered[begin : begin + MOST_SPANS]


def timeline(run: Run) -> Any:
    """A row per processor, a bar per run of a subgraph; those of missed jobs have a red border, their deadlines a red mark."""
    import plotly.graph_objects as go

    colour, missed = colours(run), {(j.task, j.index): j for j in run.missed}
    figure, spans = go.Figure(), shown_spans(run)
    for task in colour:
        mine = [s for s in spans if s.task == task]
        lost = [(s.task, s.index) in missed for s in mine]
        figure.add_bar(
            orientation="h", name=task, y=[s.processor for s in mine], base=[s.start_ns / 1e6 for s in mine],
            x=[(s.end_ns - s.start_ns) / 1e6 for s in mine],
            text=[f"{task} #{s.index} {s.subgraph}" + (" (missed)" if m else "") for s, m in zip(mine, lost, strict=True)],
            textposition="none", hovertemplate="%{text}<br>from %{base:.3f} ms, %{x:.3f} ms long<extra></extra>",
            marker={"color": colour[task], "line": {"color": MISSED, "width": [2 if m else 0 for m in lost]}},
        )  # fmt: skip
    late = [(s, missed[s.task, s.index]) for s in spans if (s.task, s.index) in missed]
    due = [(job.deadline_ns / 1e6, s.processor, f"deadline of {s.task} #{s.index}") for s, job in late if job.deadline_ns]
    if due:
        x, y, text = zip(*due, strict=True)
        figure.add_scatter(
            x=x, y=y, text=text, mode="markers", name="missed deadline", hovertemplate="%{text}<br>%{x:.3f} ms<extra></extra>",
            marker={"symbol": "line-ns-open", "size": 26, "color": MISSED, "line": {"width": 2}},
        )  # fmt: skip
    rows = [p.name for p in run.plan.processors if any(s.processor == p.name for s in spans)]
    figure.update_layout(
        barmode="overlay", height=140 + 70 * max(len(rows), 1), margin={"t": 20, "b": 40},
        xaxis={"title": "ms since the start", "rangeslider": {"visible": True, "thickness": 0.08}},
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1]}, template="plotly_white",
    )  # fmt: skip
    return figure


def latencies(run: Run) -> Any:
    """Of each task the share of jobs that ended within a time, beside its deadline."""
    import plotly.graph_objects as go

    figure, colour = go.Figure(), colours(run)
    for task, shade in colour.items():
        mine = [j for j in run.jobs if j.task == task]
        ended = sorted((j.end_ns - j.release_ns) / 1e6 for j in mine if j.finished)
        if not ended:
            continue
        share = [100 * (i + 1) / len(mine) for i in range(len(ended))]
        figure.add_scatter(x=ended, y=share, mode="lines", line={"shape": "hv", "color": shade}, name=task)
        deadline = _relative_deadline(mine)
        if deadline is not None:
            figure.add_vline(x=deadline, line={"color": shade, "dash": "dot"})
    figure.update_layout(
        height=360, margin={"t": 20}, template="plotly_white", yaxis_title="% of released jobs",
        xaxis={"title": "ms from release to end (dotted: deadline)", "type": "log"},
    )  # fmt: skip
    return figure


def _relative_deadline(jobs: list[JobRecord]) -> float | None:
    return next(((j.deadline_ns - j.release_ns) / 1e6 for j in jobs if j.deadline_ns is not None), None)


def utilisation(run: Run) -> dict[str, dict[str, float]]:
    """Share of the run that each task kept each processor busy: by processor, then task."""
    busy: Counter[tuple[str, str]] = Counter()
    for span in run.spans:
        busy[span.processor, span.task] += span.end_ns - span.start_ns
    whole = max(run.end_ns, 1)
    return {
        p.name: {task: busy[p.name, task] / whole for task in colours(run) if busy[p.name, task]} for p in run.plan.processors
    }


def is_clean(run: Run) -> bool:
    return all(j.outcome == MET for j in run.jobs)
