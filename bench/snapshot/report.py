"""The report of the snapshot scenario: its first samples beside its last ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.results import Results
from bench.snapshot.amounts import Amounts
from bench.snapshot.figures import ROWS, TABLES, Row, SnapshotFigure, dead, index_mb, table_mb
from bench.tables import table

Samples = Sequence[Mapping[str, float]]


def snapshot_tables(results: Results) -> str:
    """The complete report, for the terminal."""
    if not results.snapshot:
        return ""
    return _cost_table(results.snapshot) + "\n\n" + _size_table(results.snapshot)


def write_snapshot(output: Path, results: Results, amounts: Amounts) -> None:
    """Writes snapshot.md and snapshot.json."""
    document = {
        "facts": results.facts,
        "samples": results.snapshot,
        "failures": results.failures.get("snapshot", []),
    }
    (output / "snapshot.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "snapshot.md").write_text(_markdown(results, amounts))


def ratio(samples: Samples, figure: str) -> float:
    """The end to the beginning: medians of the first samples and of the last ones."""
    return _last(samples, figure) / _first(samples, figure)


def _first(samples: Samples, figure: str) -> float:
    return median(sample[figure] for sample in samples[: _few(samples)])


def _last(samples: Samples, figure: str) -> float:
    return median(sample[figure] for sample in samples[-_few(samples) :])


def _few(samples: Samples) -> int:
    return max(1, len(samples) // 6)


def _cost_table(samples: Samples) -> str:
    rows = [
        [
            row.title,
            f"{_first(samples, row.figure):,.1f}",
            f"{_last(samples, row.figure):,.1f}",
            _judged(row, ratio(samples, row.figure)),
            _limit(row),
        ]
        for row in ROWS
    ]
    return table(["with the snapshot held", "first", "last", "ratio", "limit"], rows)


def _judged(row: Row, value: float) -> str:
    crossed = (row.ratio_max is not None and value > row.ratio_max) or (
        row.ratio_min is not None and value < row.ratio_min
    )
    return f"**{value:.2f}**" if crossed else f"{value:.2f}"


def _limit(row: Row) -> str:
    if row.ratio_max is not None:
        return f"at most {row.ratio_max}"
    return "-" if row.ratio_min is None else f"at least {row.ratio_min}"


def _size_table(samples: Samples) -> str:
    rows = [
        [name]
        + [
            f"{edge(samples, figure(name)):,.{digits}f}"
            for figure, digits in ((dead, 0), (table_mb, 1), (index_mb, 1))
            for edge in (_first, _last)
        ]
        for name in TABLES
    ]
    return table(
        [
            *("table", "dead rows, first", "last", "table (MB), first", "last"),
            *("indexes (MB), first", "last"),
        ],
        rows,
    )


def _markdown(results: Results, amounts: Amounts) -> str:
    facts, samples = results.facts, results.snapshot
    machine = facts["machine"]
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    failures = [
        f"- FAILED: {fault.splitlines()[0]}" for fault in results.failures.get("snapshot", [])
    ]
    minutes = samples[-1][SnapshotFigure.MINUTE] if samples else 0.0
    return "\n".join(
        [
            "# Bench: a snapshot held under load",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}. "
            "Figures are this machine's; only the ratios are comparable.",
            "",
            f"- PostgreSQL: {postgres}",
            f"- {amounts.history:,} finished jobs. A session holds a snapshot from before the "
            f"first sample until after the last one, {minutes:.0f} minutes later: nothing that is "
            "deleted meanwhile can be removed.",
            f"- Each sample: {amounts.per_second} jobs a second for {amounts.paced_seconds:.0f} s, "
            f"submitted one by one for {amounts.organisations} organisations, and then "
            f"{amounts.burst:,} at once. One worker process runs them. A burst ends when the last "
            "of its jobs is completed.",
            f"- First and last are medians of the {_few(samples)} first and last of "
            f"{len(samples)} samples. CPU is the kernel's count of PostgreSQL's processes. Dead "
            "rows are what PostgreSQL's statistics have.",
            "",
            snapshot_tables(results),
            "",
            "![the samples over time](snapshot.png)",
            "",
            *failures,
        ]
    )
