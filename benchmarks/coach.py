"""The coach over the emulated sensor, live: what is lost, how late decisions are, what damage on the line and unplugging do.

`python -m benchmarks.coach [--minutes 10] [--speed 5] [--json]` plays so many minutes of recordings three times: on a clean line,
with 1 % of the bytes damaged, and unplugged for 3 s in the middle. Both are processes of their own, joined by a pty. A decision
is right when its window lies within one recording and is given that recording's label.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

WINDOW_S = 2.56  # of recorded time
UNPLUGGED_S = 3.0
SETTLE_S = 20.0  # for the coach's start: opening the port, the plan, a first window
ERRORS = 0.01
P99_MS, FALL, RESUMED_S = 50.0, 0.02, 2.0  # the bars: below each of them

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """`accuracy` over the windows of one recording, `p99_ms` from a window's last byte to the decision; `resumed_s` from
    replugging to the first decision on fresh samples, `stale` decisions made while nothing came.
    """

    what: str
    decisions: int
    outcomes: dict[str, int]
    p50_ms: float
    p99_ms: float
    accuracy: float
    resumed_s: float | None = None
    stale: int = 0


def run(what: str, minutes: float, speed: float, *emulated: str) -> Run:
    """One run of both. Raises RuntimeError, with what it said, if the coach ends otherwise than well."""
    seconds = 60 * minutes / speed
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as made:
        folder = Path(made)
        port, state = folder / "tty", folder / "state"
        config = folder / "coach.toml"
        config.write_text(f'port = "{port}"\nspeed = {speed}\nstate = "{state}"\n')
        emulator = [sys.executable, "-m", "coach.emulator", "--port", str(port), "--speed", str(speed), "--state", str(state)]
        played = folder / "played.jsonl"
        with subprocess.Popen([*emulator, "--log", str(played), *emulated], stderr=subprocess.DEVNULL) as board:
            try:
                while not port.exists():
                    time.sleep(0.05)
                decided = folder / "decided.jsonl"
                coach = [sys.executable, "-m", "coach", "--config", str(config), "--seconds", str(seconds), "--plain"]
                done = subprocess.run([*coach, "--log", str(decided)], capture_output=True, text=True, check=False)
            finally:
                board.terminate()
        if done.returncode:
            raise RuntimeError(f"coach: exit {done.returncode}: {done.stderr[-500:]}")
        return judged(what, _lines(decided), _lines(played), speed)


def judged(what: str, decisions: list[Line], events: list[Line], speed: float) -> Run:
    latencies = np.array([d["latency_ns"] for d in decisions if d["latency_ns"] is not None]) / 1e6
    begun = [e for e in events if e["event"] == "recording"]
    starts = [e["at_s"] for e in begun]
    right = []
    for d in decisions:
        if d["label"] is None or d["last_byte_ns"] is None:
            continue
        at_s = d["last_byte_ns"] / 1e9
        current = bisect_right(starts, at_s) - 1
        if current >= 0 and at_s - starts[current] > WINDOW_S / speed:
            right.append(d["label"] == begun[current]["label"])
    away, back = (next((e["at_s"] for e in events[1:] if e["event"] == name), None) for name in ("unplugged", "plugged in"))
    resumed, stale = None, 0
    if away is not None and back is not None:
        made = [d["at_ns"] / 1e9 for d in decisions if d["label"] is not None]
        resumed = next((at - back for at in made if at > back), None)
        stale = sum(away + WINDOW_S / speed < at < back for at in made)
    return Run(
        what, len(decisions), dict(Counter(d["outcome"] for d in decisions)), float(np.quantile(latencies, 0.5)),
        float(np.quantile(latencies, 0.99)), float(np.mean(right)), resumed, stale,
    )  # fmt: skip


def _lines(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def measure(minutes: float, speed: float) -> list[Run]:
    middle = SETTLE_S + 30 * minutes / speed
    return [
        run("clean line", minutes, speed),
        run("1 % of bytes damaged", minutes, speed, "--errors", str(ERRORS)),
        run("unplugged for 3 s", minutes, speed, "--unplug", f"{middle}:{UNPLUGGED_S}"),
    ]


def missed(runs: list[Run]) -> list[str]:
    """What falls short of the bars, one line each."""
    clean, damaged, unplugged = runs
    lost = sum(n for outcome, n in clean.outcomes.items() if outcome not in ("met", "late"))
    resumed_s = unplugged.resumed_s
    checks = (
        (lost == 0, f"{lost} windows lost on a clean line"),
        (clean.p99_ms < P99_MS, f"sensor to action p99 {clean.p99_ms:.1f} ms; the bar is {P99_MS:g}"),
        (clean.accuracy - damaged.accuracy < FALL, f"accuracy falls from {clean.accuracy:.1%} to {damaged.accuracy:.1%}"),
        (resumed_s is not None and resumed_s < RESUMED_S, f"resumed after {resumed_s} s; the bar is {RESUMED_S:g}"),
        (unplugged.stale == 0, f"{unplugged.stale} decisions on stale data"),
    )
    return [text for held, text in checks if not held]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coach", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of recordings, per run")
    parser.add_argument("--speed", type=float, default=5.0)
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args()
    shortest = (SETTLE_S + UNPLUGGED_S + RESUMED_S) * given.speed / 30  # else the run may end before the unplugging in its middle
    if given.minutes < shortest:
        parser.error(f"--minutes {given.minutes:g}: at this speed at least {shortest:.1f}, or nothing is unplugged")
    runs = measure(given.minutes, given.speed)
    if given.json:
        print(json.dumps([asdict(r) for r in runs], indent=1))
    for r in () if given.json else runs:
        ends = ", ".join(f"{n} {outcome}" for outcome, n in sorted(r.outcomes.items()))
        again = "" if r.resumed_s is None else f"; resumed {r.resumed_s:.2f} s after replugging, {r.stale} stale decisions"
        print(f"{r.what:24} {ends}; p50 {r.p50_ms:.1f} ms, p99 {r.p99_ms:.1f} ms; {r.accuracy:.1%} right{again}")
    if given.check and (short := missed(runs)):
        sys.exit("\n".join(short))


if __name__ == "__main__":
    main()
