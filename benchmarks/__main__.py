"""`python -m benchmarks [NAME…] [--json]`: run the benchmarks, print one table; all of them are kept as results/latest.json."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks import (
    costs,
    cuts,
    decision,
    end_to_start,
    memory,
    profiles,
    search_curve,
    simulator,
    submit_to_result,
    submit_to_start,
    training,
)
from benchmarks.harness import document, table

MODULES = (
    end_to_start, submit_to_start, submit_to_result, decision, simulator, memory, costs, search_curve, profiles, cuts, training,
)  # fmt: skip
BENCHMARKS = {module.__name__.rpartition(".")[2].replace("_", "-"): module.run for module in MODULES}
RESULTS = Path(__file__).with_name("results") / "latest.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, progress on stderr")
    given = parser.parse_args()
    unknown = [n for n in given.names if n not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    rows = []
    for name in given.names or BENCHMARKS:
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        begun = time.perf_counter()
        rows += BENCHMARKS[name]()
        print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    text = json.dumps(document(rows), indent=1)
    if not given.names:  # a few of them would take the place of the whole record
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text + "\n")
    print(text if given.json else table(rows))


if __name__ == "__main__":
    main()
