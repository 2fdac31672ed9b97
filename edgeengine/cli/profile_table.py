"""A profile as a table people can act on: what each part takes where, what bounds it, what fell back, what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeengine.cli.console import print_table
from edgeengine.profiling import PREDICTED, bound, moved_bytes
from edgeengine.spec import MachineRow, Manifest, ProfileRow


def print_profile(
    manifest: Manifest, device: str, condition: str, rows: Sequence[ProfileRow], machine: Mapping[str, MachineRow]
) -> None:
    """A line per subgraph: MACs, bytes moved, p50 and p99 on each processor, then what bounds it on the fastest one.

    "bound" says how much of the p50 that bound explains. Of the processors, the worst is shown of these: half the 95 % confidence
    interval of the median (±), session creation, memory of a session, the share of nodes that fell back to another provider.
    """
    processors = list(dict.fromkeys(r.processor for r in rows))
    found = {(r.subgraph, r.processor): r for r in rows}
    lines = []
    for s in manifest.subgraphs:
        mine = [found[s.name, p] for p in processors if (s.name, p) in found]
        if not mine:
            continue
        times = [_times(found.get((s.name, p))) for p in processors]
        moved = moved_bytes(s)
        memory = [r.resident_bytes for r in mine if r.resident_bytes is not None]
        fastest = min(
            (r for r in mine if r.usable and r.latency.n and r.measured),
            key=lambda r: r.latency.p50_ns,
            default=None,
        )
        limit = bound(s, fastest, machine) if fastest is not None else None
        lines.append([
            s.name, s.nodes, None if s.macs is None else s.macs / 1e6, None if moved is None else moved / 1e6, *times,
            _share([r.half_width for r in mine]), max(r.create_ns for r in mine) / 1e6, max(memory) / 1e6 if memory else None,
            _share([fallen(r) for r in mine]), f"{limit.by} {limit.share:.0%}" if limit is not None else None, _verdicts(mine),
        ])  # fmt: skip
    columns = ["part", "nodes", "MMACs", "MB", *processors, "±", "create", "RSS MB", "fell back", "bound", "outputs"]
    title = f"{manifest.name} on {device}, {condition.replace('_', ' ')} (ms, p50 / p99)"
    print_table(title, columns, lines, numeric=columns[1:-2])


def _times(row: ProfileRow | None) -> str | None:
    """ "p50 / p99"; "~p50" where it is predicted, with the bounds that hold it at 90 % where they are known."""
    if row is None or not row.usable:
        return None
    if row.interval_ns is not None:
        low, p50, high = (f"{ns / 1e6:.3g}" for ns in (row.interval_ns[0], row.latency.p50_ns, row.interval_ns[1]))
        return f"~{p50} ({low} to {high})"
    p50 = f"{row.latency.p50_ns / 1e6:.3g}"
    return f"~{p50}" if row.ended == PREDICTED else f"{p50} / {row.latency.p99_ns / 1e6:.3g}" if row.latency.n else None


def _share(values: Sequence[float | None]) -> str | None:
    """The greatest, as a percentage; None where one is not known."""
    known = [v for v in values if v is not None]
    return f"{max(known):.1%}" if known and len(known) == len(values) else None


def _verdicts(rows: Sequence[ProfileRow]) -> str:
    """ "ok", or what is wrong on which processor; "predicted" where nothing was run."""
    run = [r for r in rows if r.measured]
    wrong = [f"{r.verdict} on {r.processor}" for r in run if r.verdict != "ok"]
    return ", ".join(wrong) or ("ok" if run else ", ".join(dict.fromkeys(r.ended for r in rows)))


def fallen(row: ProfileRow) -> float | None:
    """The share of nodes that ran elsewhere than asked, None where the runtime does not tell."""
    placement = row.placement
    total = sum(placement.nodes.values()) if placement is not None else 0
    return None if placement is None or not total else 1 - placement.nodes.get(placement.asked, 0) / total


def bounds(manifest: Manifest, rows: Sequence[ProfileRow], machine: Mapping[str, MachineRow]) -> list[dict[str, object]]:
    """[{subgraph, processor, condition, bound, share}, …] for --json, where they are known."""
    found = ((r, bound(manifest.subgraph(r.subgraph), r, machine)) for r in rows)
    return [
        {"subgraph": r.subgraph, "processor": r.processor, "condition": r.condition, "bound": b.by, "share": b.share}
        for r, b in found
        if b is not None
    ]


def remarks(rows: Sequence[ProfileRow]) -> list[str]:
    """A line for everything that is not as it should be."""
    lines = []
    for r in rows:
        where = f"{r.subgraph} on {r.processor}"
        if not r.usable:
            lines.append(f"warning: {where} {r.verdict}: {r.reason}; no plan will use it")
        for f in r.placement.fallback if r.placement is not None else ():
            why = f": {f.reason}" if f.reason else ""
            lines.append(f"warning: {where}: {len(f.nodes)} {f.op} fell back to {f.provider}{why}")
        if r.denormals:
            lines.append(f"warning: {where}: {r.denormals} denormal values in its outputs, which slow CPUs down")
    most = max(rows, key=lambda r: r.denormal_weights, default=None)
    if most is not None and most.denormal_weights:
        lines.append(f"warning: {most.subgraph}: {most.denormal_weights} denormal weights, which slow CPUs down; make them zero")
    return list(dict.fromkeys(lines))
