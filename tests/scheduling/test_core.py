"""The scheduler core by example: carried state, stale inputs, training steps, cancelling, lost processors."""

from __future__ import annotations

from typing import Any

import pytest

from edgeengine.errors import InternalError, UserError
from edgeengine.events import AnyAction, Cancel, Cancelled, Drop, EstimateChanged, Hold, Reject, Released, Start, Time
from edgeengine.scheduling import Scheduler
from edgeengine.scheduling.follow_up import first_training_releases, follow_ups
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.fifo import Fifo
from edgeengine.simulation import Median, simulate
from tests.builders import MS, plan, processor, workload
from tests.scheduling.driver import Driver, Scripted


def driver(*tasks: dict[str, Any], **options: Any) -> Driver:
    made = workload(*tasks)
    return Driver(made, plan(made, options.get("processors")), options.get("policy") or Fifo(early_drop=False))


def test_job_passes_its_subgraphs_in_order_and_ends_met() -> None:
    d = driver({"name": "t", "segments": 3, "latency_ms": {"p": 3}, "deadline_ms": 10})
    d.release("t", at=1)
    for at in (2, 3, 4):
        d.finish("p", at=at)
    assert [s.subgraph for s in d.started] == ["s0_1", "s1_2", "s2_3"]
    job = d.ended["t", 0]
    assert (job.outcome, job.cause, job.release_ns, job.start_ns, job.finish_ns) == ("met", "", 1, 1, 4)


def test_job_that_ends_on_its_deadline_is_met_and_a_nanosecond_later_late() -> None:
    d = driver({"name": "t", "deadline_ms": 2})
    d.release("t", at=0)
    d.finish("p", at=2 * MS)
    d.release("t")
    d.finish("p", at=4 * MS + 1)
    assert [d.ended["t", i].outcome for i in (0, 1)] == ["met", "late"]


def test_deadline_given_with_the_release_holds() -> None:
    d = driver({"name": "t", "deadline_ms": 50})
    d.release("t", at=0, deadline_ns=3)
    d.finish("p", at=4)
    assert (d.ended["t", 0].outcome, d.ended["t", 0].deadline_ns) == ("late", 3)


def test_release_of_an_unknown_task_is_a_user_error() -> None:
    tasks = workload({"name": "t"})
    with pytest.raises(UserError, match="no task 'x'"):
        Scheduler(tasks, plan(tasks), Fifo()).step(Released(0, "x", 0, 0))


def test_release_of_the_same_job_twice_is_refused() -> None:
    d = driver({"name": "t"})
    d.release("t")
    with pytest.raises(InternalError, match="twice"):
        d.release("t", index=0)


# ---- carried state ----


def test_carried_jobs_run_in_order_though_processors_are_free() -> None:
    d = driver({"name": "t", "carry": {"y": "x"}, "latency_ms": {"p": 1, "q": 1}})
    for _ in range(3):
        d.release("t")
    assert [s.index for s in d.started] == [0]
    d.finish(d.started[0].processor)
    assert [s.index for s in d.started] == [0, 1]
    d.finish(d.started[1].processor)
    d.finish(d.started[2].processor)
    assert [i for _, i in d.order] == [0, 1, 2]


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_carried_job_waits_for_whom_a_dropped_one_waited_for(end: str) -> None:
    d = driver({"name": "t", "carry": {"y": "x"}, "latency_ms": {"p": 1, "q": 1}})
    for _ in range(4):
        d.release("t")
    if end == "cancel":
        d.cancel("t", 1)
        assert [s.index for s in d.started] == [0]
        d.finish(d.started[0].processor)
    else:
        d.fail(d.started[0].processor)
    assert [s.index for s in d.started][1:] == [2 if end == "cancel" else 1]
    d.drain()
    d.check_drained()


def test_last_of_a_carried_chain_dropped_leaves_the_next_release_behind_the_running_one() -> None:
    d = driver({"name": "t", "carry": {"y": "x"}, "latency_ms": {"p": 1, "q": 1}})
    d.release("t")
    d.release("t")
    d.cancel("t", 1)
    d.release("t")
    assert [s.index for s in d.started] == [0]


def test_carried_job_behind_one_that_the_policy_drops_starts_at_once() -> None:
    """It must not wait for another event: there may be none."""
    tasks = workload({"name": "t", "carry": {"y": "x"}, "period_ms": 1, "deadline_ms": 3, "latency_ms": {"p": 2}})
    d = Driver(tasks, plan(tasks), Edf())
    for at in (0, 1, 3):
        d.release("t", at=at * MS)
    d.finish("p", at=3 * MS)
    assert d.ended["t", 1].cause == "cannot finish in time"
    assert [s.index for s in d.started] == [0, 2]


# ---- stale inputs ----


def test_latest_drops_what_has_not_started() -> None:
    d = driver({"name": "t", "stale": "latest", "segments": 2, "latency_ms": {"p": 2}})
    for _ in range(4):
        d.release("t")
    assert [d.ended[k].cause for k in d.order] == ["stale: newer input came"] * 2
    assert d.order == [("t", 1), ("t", 2)]
    d.drain()
    assert [d.ended["t", i].outcome for i in range(4)] == ["met", "dropped", "dropped", "met"]


def test_latest_leaves_a_job_between_its_subgraphs_alone() -> None:
    d = driver({"name": "t", "stale": "latest", "segments": 2, "latency_ms": {"p": 2}}, {"name": "first"})
    d.release("first", at=0)
    d.release("t", at=1)
    d.finish("p")  # t#0 starts
    d.release("first", at=2)
    d.finish("p", at=3)  # t#0 goes on before the younger `first`
    d.release("t", at=4)
    assert ("t", 0) not in d.ended
    d.drain()
    assert d.ended["t", 0].outcome == "met"


def test_queue_limit_counts_those_that_wait_and_not_the_one_that_runs() -> None:
    d = driver({"name": "t", "stale": "queue:2"})
    for _ in range(5):
        d.release("t")
    assert d.order == [("t", 3), ("t", 4)]
    assert {(d.ended[k].outcome, d.ended[k].cause) for k in d.order} == {("rejected", "queue full (2)")}
    d.finish("p")  # one leaves the queue, one may join it
    d.release("t")
    d.release("t")
    assert d.order[-1] == ("t", 6)
    d.drain()
    d.check_drained()


def test_queue_place_is_given_back_by_cancelling() -> None:
    d = driver({"name": "t", "stale": "queue:1"})
    d.release("t")
    d.release("t")
    d.cancel("t", 1)
    d.release("t")
    assert ("t", 2) not in d.ended


# ---- training ----


def test_training_releases_a_step_when_the_previous_ended_unless_it_failed() -> None:
    d = driver({"name": "train", "kind": "train", "segments": 2, "latency_ms": {"p": 2}})
    (first,) = first_training_releases(d.scheduler.tasks.values())
    assert first == Released(0, "train", 0, 0)
    d.step(first)
    d.finish("p", at=5)
    assert follow_ups(d.scheduler, 5, None, False) == []
    d.finish("p", at=7)
    assert d.ended["train", 0].deadline_ns is None
    assert follow_ups(d.scheduler, 7, None, False) == [Released(7, "train", 1, 7)]
    assert follow_ups(d.scheduler, 7, 8, False) == [Released(7, "train", 1, 7)]
    assert follow_ups(d.scheduler, 7, 7, False) == []
    d.step(Released(7, "train", 1, 7))
    d.fail("p")
    assert follow_ups(d.scheduler, 9, None, False) == []  # it would fail again at once, for ever


# ---- cancelling ----


def test_running_job_is_asked_to_stop_and_ends_dropped_even_if_it_ran_through() -> None:
    d = driver({"name": "t"})
    d.release("t")
    assert d.step(Cancelled(0, "t", 0)) == [Cancel("t", 0)]
    d.finish("p")
    assert (d.ended["t", 0].outcome, d.ended["t", 0].cause) == ("dropped", "cancelled")


def test_cancelling_what_ended_or_never_was_changes_nothing() -> None:
    d = driver({"name": "t"})
    d.release("t")
    d.finish("p")
    d.cancel("t", 0)
    d.cancel("t", 7)
    assert d.order == [("t", 0)]


# ---- processors come and go ----


def test_lost_processor_sends_its_subgraph_to_another_one() -> None:
    d = driver({"name": "t", "segments": 2, "latency_ms": {"fast": 2, "slow": 8}})
    d.release("t")
    d.finish("fast")
    d.lose("fast")
    assert [(s.subgraph, s.processor) for s in d.started] == [("s0_1", "fast"), ("s1_2", "fast"), ("s1_2", "slow")]
    d.finish("slow")
    assert d.ended["t", 0].outcome == "met"


def test_lost_processor_without_another_fails_the_job_with_the_cause() -> None:
    d = driver({"name": "t"})
    d.release("t")
    d.lose("p")
    assert (d.ended["t", 0].outcome, d.ended["t", 0].cause) == ("failed", "processor lost: unplugged")


def test_late_news_of_a_lost_processor_is_ignored() -> None:
    d = driver({"name": "t", "latency_ms": {"p": 1, "q": 2}})
    d.release("t")
    start = d.running["p"]
    d.lose("p")
    d.back("p")
    d.running["p"] = start
    d.finish("p")  # of the run that was lost
    assert ("t", 0) not in d.ended
    d.finish("q")
    assert d.ended["t", 0].outcome == "met"


def test_job_that_no_processor_left_can_finish_fails_at_once_and_the_next_runs_when_it_is_back() -> None:
    d = driver({"name": "t"})
    d.lose("p")
    d.release("t")
    assert (d.ended["t", 0].outcome, d.ended["t", 0].cause) == ("failed", "no processor left: p is lost (unplugged)")
    d.back("p")
    d.release("t")
    assert d.running["p"].index == 1


def test_unusable_processor_is_never_used() -> None:
    d = driver(
        {"name": "t", "latency_ms": {"fast": 1, "slow": 9}},
        processors=(processor("fast", usable=False, reason="no driver"), processor("slow")),
    )
    d.release("t")
    assert d.started[0].processor == "slow"


def test_what_a_lost_processor_could_have_done_in_time_is_dropped() -> None:
    d = driver({"name": "t", "latency_ms": {"fast": 2, "slow": 8}, "deadline_ms": 5}, policy=Fifo())
    d.lose("fast")
    d.release("t")
    assert d.ended["t", 0].cause == "cannot finish in time"
    d.back("fast")
    d.release("t")
    assert d.running["fast"].index == 1


def test_estimate_changes_the_choice_of_processor() -> None:
    d = driver({"name": "t", "latency_ms": {"p": 1, "q": 2}})
    d.step(EstimateChanged(0, "p", 9.0))
    d.release("t")
    assert d.started[0].processor == "q"


# ---- what a policy may and may not ----


@pytest.mark.parametrize(
    ("actions", "what"),
    [
        ([Start("t", 9, "s0_1", "p")], "not ready"),
        ([Start("t", 0, "s0_1", "nowhere")], "does not allow"),
        ([Start("t", 0, "s1_2", "p")], "does not allow"),
        ([Start("t", 0, "nothing", "p")], "does not allow"),
        ([Start("t", 0, "s0_1", "r")], "does not allow"),
        ([Start("t", 0, "s0_1", "p"), Start("t", 1, "s0_1", "p")], "not free"),
        ([Start("t", 0, "s0_1", "p"), Start("t", 1, "s0_1", "both")], "not free"),
        ([Start("t", 0, "s0_1", "p"), Start("t", 0, "s0_1", "q")], "not ready"),
        ([Start("t", 0, "s0_1", "lost")], "not free"),
        ([Hold("p", 5), Start("t", 0, "s0_1", "p")], "not free"),
        ([Drop("t", 9, "why not")], "not waiting"),
        ([Start("t", 0, "s0_1", "p"), Drop("t", 0, "why not")], "not waiting"),
        ([Start("t", 0, "s0_1", "p"), Reject("t", 0, "why not")], "not waiting"),
        ([Cancel("t", 0)], "does not run"),
    ],
)
def test_misuse_by_a_policy_is_named(actions: list[AnyAction], what: str) -> None:
    d = driver(
        {"name": "t", "segments": 2, "latency_ms": {"p": 1, "q": 1, "both": 1, "lost": 1}}, {"name": "u", "latency_ms": {"r": 1}},
        policy=Scripted([], [], actions),
        processors=(*map(processor, "pqr"), processor("both", "p", "q"), processor("lost", usable=False, reason="gone")),
    )  # fmt: skip
    d.release("t")
    d.release("t")
    with pytest.raises(InternalError, match=f"'scripted'.*{what}"):
        d.scheduler.step(Time(0))


def test_held_processor_is_free_again_when_the_time_is_over() -> None:
    start: list[AnyAction] = [Start("t", 0, "s0_1", "p")]
    d = driver({"name": "t"}, policy=Scripted([Hold("p", 5), Hold("p", 3)], start))
    d.release("t")
    d.pass_time(5)
    assert d.running["p"].index == 0


def test_policy_may_cancel_what_runs() -> None:
    d = driver({"name": "t"}, {"name": "u"}, policy=Scripted([Start("t", 0, "s0_1", "p")], [Cancel("t", 0)]))
    d.release("t")
    d.release("u")
    d.finish("p", cut_short=True)
    assert d.ended["t", 0].outcome == "dropped"


def test_rejected_by_policy_keeps_its_cause() -> None:
    d = driver({"name": "t"}, policy=Scripted([Reject("t", 0, "no budget")]))
    d.release("t")
    assert (d.ended["t", 0].outcome, d.ended["t", 0].cause) == ("rejected", "no budget")


def test_policy_sees_all_jobs_of_an_instant_before_it_decides() -> None:
    """A background job listed first must not slip in before a high one released at the same instant."""
    made = workload(
        {"name": "low", "criticality": "background", "period_ms": 10, "latency_ms": {"p": 5}},
        {"name": "high", "criticality": "high", "period_ms": 10, "latency_ms": {"p": 5}},
    )
    scheduler = Scheduler(made, plan(made), Edf())
    assert scheduler.step(Released(0, "low", 0, 0, more=True)) == []
    assert [(a.task, type(a)) for a in scheduler.step(Released(0, "high", 0, 0))] == [("high", Start)]


def test_training_step_with_a_deadline_does_not_spin() -> None:
    """It is never dropped early: the next would be released at the same instant, and dropped, for ever."""
    made = workload({"name": "t", "kind": "train", "deadline_ms": 5, "latency_ms": {"p": 10}})
    done = simulate(made, plan(made), Edf(), Median(), stop_ns=25 * MS)
    assert [j.outcome for j in done.jobs] == ["late"] * 3


def test_hold_can_be_lifted() -> None:
    made = workload({"name": "t", "latency_ms": {"p": 5}})
    scheduler = Scheduler(made, plan(made), Scripted([Hold("p", 50 * MS)], [Hold("p", 0), Start("t", 0, "s0_1", "p")]))
    scheduler.step(Released(0, "t", 0, 0))
    scheduler.step(Time(1 * MS))
    assert scheduler.alive()[0].processor is not None
