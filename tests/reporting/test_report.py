"""Reports: what is read back is what ran, a miss is explained by what stood in its way, and the files open by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeengine.errors import UserError
from edgeengine.reporting import run_document, task_rows, write_run_folder
from edgeengine.reporting.report import Run, explain, load_run, perfetto_trace, report_html
from edgeengine.reporting.report.figures import MOST_SPANS, shown_spans, utilisation
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.workload import Workload
from tests.builders import MS, plan, workload

Made = Callable[..., Run]
SHORT = {"name": "short", "latency_ms": {"p": 4}, "period_ms": 100, "deadline_ms": 10, "criticality": "high"}


def beside_long(folder: Path, *starts_ms: float, **more: object) -> Workload:
    """A short task every 100 ms, and 30 ms of background work on its processor, released at these times."""
    trace = folder / "long.csv"
    trace.write_text("".join(f"{t}\n" for t in starts_ms))
    pattern = {"arrivals": {"trace": str(trace)}, "deadline_ms": 90, "criticality": "background"}
    return workload(SHORT, {"name": "long", "latency_ms": {"p": 30}} | pattern, *more.values())  # type: ignore[arg-type]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A run of the tasks, written to a folder and read back."""

    def run(tasks: Workload, seconds: float = 1.0, policy: str = "edf") -> Run:
        planned = plan(tasks)
        done = simulate(tasks, planned, make_policy(policy), Median(), stop_ns=round(seconds * 1e9), keep_log=True)
        document = run_document(task_rows(tasks, done.jobs, done.released), mode="simulated", policy=policy, seconds=seconds)
        write_run_folder(
            tmp_path / "run", document=document, plan=planned, log=done.log or [], jobs=done.jobs, rows=[], machine=[]
        )
        return load_run(tmp_path / "run")

    return run


@pytest.fixture
def blocked(made: Made, tmp_path: Path) -> Run:
    """The long work begins 5 ms before a short job is released, in the second and fourth period."""
    return made(beside_long(tmp_path, 95, 295), 0.5)


def test_what_is_read_back_is_what_ran(blocked: Run) -> None:
    assert [(s.task, s.index, s.start_ns // MS, s.end_ns // MS) for s in blocked.spans] == [
        ("short", 0, 0, 4), ("long", 0, 95, 125), ("short", 2, 200, 204), ("long", 1, 295, 325), ("short", 4, 400, 404),
    ]  # fmt: skip
    assert [(j.task, j.index) for j in blocked.missed] == [("short", 1), ("short", 3)]
    assert utilisation(blocked) == {"p": {"short": pytest.approx(12 / 404), "long": pytest.approx(60 / 404)}}


def test_a_miss_is_laid_to_what_stood_in_its_way(blocked: Run) -> None:
    first, second = explain(blocked)
    assert (first.job.index, second.job.index) == (1, 3)
    assert first.reason == second.reason == "waited for long"
    assert [who for who, _ in first.blockers] == ["long"] and first.ran_ns == 0
    assert first.sentence.startswith("dropped: cannot finish in time; waited ") and "long ran" in first.sentence


def test_a_job_that_ran_too_long_says_so(made: Made) -> None:
    """Three parts of 4 ms before a deadline of 10 ms: late by its own doing."""
    tasks = workload({"name": "t", "latency_ms": {"p": 12}, "segments": 3, "period_ms": 20, "deadline_ms": 15})
    run = made(tasks)
    assert not run.missed and not explain(run)
    late = workload({"name": "t", "latency_ms": {"p": 12}, "period_ms": 20, "deadline_ms": 10})
    (reason,) = {e.reason for e in explain(made(late))}
    assert reason == "cannot finish in time"


def test_the_page_stands_alone_and_names_the_reasons(blocked: Run) -> None:
    page = report_html(blocked, "a <title>").decode()
    assert "a &lt;title&gt;" in page and 'src="http' not in page
    assert "2 of 7 jobs missed; worst: short, 40.0% of its jobs." in page
    assert "waited for long" in page and '<div id="timeline"' in page


def test_a_clean_run_says_so(made: Made) -> None:
    page = report_html(made(workload({"name": "t", "latency_ms": {"p": 1}, "period_ms": 10})), "clean").decode()
    assert "All 100 jobs met their deadlines." in page and "Why deadlines were missed" not in page


def test_training_is_told_version_by_version(made: Made) -> None:
    run = made(workload({"name": "t", "latency_ms": {"p": 1}, "period_ms": 10}))
    versions = [
        {"name": "v1", "step": 20, "before": {"anna": 0.7}, "after": {"anna": 0.8}, "cause": "rolled back"},
        {"name": "v2", "step": 40, "before": {"anna": 0.7}, "after": {"anna": 0.912}},
    ]
    losses = {"loss_first": 0.9, "loss_last": 0.25}
    run.document["learned"] = [
        {"task": "learn", "steps": 40, "refused": 0, "serving": "v2", "versions": versions, **losses},
        {"task": "idle", "steps": 0, "refused": 0, "serving": "", "versions": [], "loss_first": None, "loss_last": None},
    ]
    page = report_html(run, "learned").decode()
    for told in ("<h2>Training</h2>", "0.9 to 0.25", "anna 0.7 to 0.912", "rolled back", "<td>serves</td>", "none published"):
        assert told in page
    assert "<h2>Training</h2>" not in report_html(made(workload({"name": "t", "period_ms": 10})), "none").decode()


def test_a_long_run_is_drawn_about_its_first_miss(made: Made, tmp_path: Path) -> None:
    run = made(beside_long(tmp_path, 59_995, tick={"name": "tick", "latency_ms": {"q": 0.5}, "period_ms": 4}), 90.0)
    shown = shown_spans(run)
    assert len(run.spans) > MOST_SPANS == len(shown)
    assert shown[0].start_ns < run.missed[0].release_ns < shown[-1].start_ns
    assert f"{MOST_SPANS} of {len(run.spans)} are shown" in report_html(run, "long").decode()


def test_the_trace_holds_every_run_on_its_processors_track(blocked: Run) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    trace.ParseFromString(perfetto_trace(blocked))
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    assert sorted(names.values()) == ["processor p", "task long", "task short"]
    events = [(p.timestamp, p.track_event) for p in trace.packet if p.HasField("track_event")]
    begins = [(t, names[e.track_uuid], e.name) for t, e in events if e.type == TrackEvent.Type.TYPE_SLICE_BEGIN]
    assert begins == [(s.start_ns, "processor p", f"{s.task} #{s.index}") for s in blocked.spans]
    ends = [t for t, e in events if e.type == TrackEvent.Type.TYPE_SLICE_END]
    assert ends == [s.end_ns for s in blocked.spans]
    assert {e.name for _, e in events} >= {"#1 dropped", "#3 dropped", "#0 released"}


def test_a_folder_that_is_none(tmp_path: Path, blocked: Run) -> None:
    with pytest.raises(UserError, match=r"result\.json: cannot be read"):
        load_run(tmp_path / "nothing")
    (tmp_path / "run" / "events.jsonl").write_text("{")
    with pytest.raises(UserError, match="not the folder of a run"):
        load_run(tmp_path / "run")
