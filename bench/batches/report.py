"""The report of the batches scenario: the table, the targets, and the memory of every process."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.batches.amounts import Amounts
from bench.batches.figures import ROWS, BatchFigure
from bench.batches.scrape import CONCURRENCY, HOST_PER_SECOND, HOSTS, PER_SECOND
from bench.measure import Spread
from bench.results import Results
from bench.tables import table
from bench.targets import Verdict

MEMORY_MEGABYTES_MAX = 300
_BURST_SECONDS = 0.05
"""How far starts may exceed their rate: docs/explanation/fairness-and-limits.md."""
_JITTER_SECONDS = 0.1
"""The allowed difference of two requests' times to the server: starts are limited, but arrivals are
measured."""

Values = Mapping[str, Sequence[float]]
Peaks = Mapping[str, float]


def batches_tables(results: Results) -> str:
    """The complete report, for the terminal."""
    if not results.batches:
        return ""
    return "\n\n".join(_tables(results.batches, results.batches_memory.peaks))


def _tables(values: Values, peaks: Peaks) -> list[str]:
    return [_figure_table(values), _target_table(values, peaks), _memory_table(peaks)]


def _figure_table(values: Values) -> str:
    rows = []
    for row in ROWS:
        measured = values.get(row.figure)
        if measured:
            spread = Spread.of(measured)
            median, least, greatest = (
                f"{value:,.{row.digits}f}"
                for value in (spread.median, spread.least, spread.greatest)
            )
            shown = median if least == greatest else f"{median} ({least}..{greatest})"
            rows.append([f"{row.title} ({row.unit})", shown, str(len(measured))])
    return table(["batches", "median (least..greatest)", "times"], rows)


def _target_table(values: Values, peaks: Peaks) -> str:
    return table(
        ["target", "found", "reached"],
        [
            [verdict.wanted, verdict.found, "yes" if verdict.reached else "**no**"]
            for verdict in _verdicts(values, peaks)
        ],
    )


def _memory_table(peaks: Peaks) -> str:
    return table(
        ["process", "peak resident memory (MB)"],
        [[name, f"{megabytes:,.0f}"] for name, megabytes in peaks.items()],
    )


def _verdicts(values: Values, peaks: Peaks) -> list[Verdict]:
    """The targets whose figures this run has."""
    found = [
        _most(values, BatchFigure.ACCEPTED, 100, "202 for a staged list: under 100 ms", "ms"),
        _ratio(
            values,
            BatchFigure.INGEST,
            BatchFigure.RAW_COPY,
            0.4,
            "ingest: at least 0.4 of raw COPY",
        ),
        _ratio(
            values,
            BatchFigure.TASK_DRAIN,
            BatchFigure.SINGLE_DRAIN,
            0.8,
            "drain of tasks: at least 0.8 of single jobs'",
        ),
        _most(values, BatchFigure.COMPLETION_EVENTS, 1, "one completion event", ""),
        _least(values, BatchFigure.EXPORT, 50_000, "export: at least 50,000 tasks/s"),
        _most(
            values,
            BatchFigure.SCRAPE_AT_ONCE,
            CONCURRENCY,
            f"scrape: at most {CONCURRENCY} at once",
            "",
        ),
        _most(
            values,
            BatchFigure.SCRAPE_RUN_RATE,
            _in_a_second(PER_SECOND),
            f"scrape: at {PER_SECOND} a second at most {_in_a_second(PER_SECOND)} in any",
            "",
        ),
        _most(
            values,
            BatchFigure.SCRAPE_HOST_RATE,
            _in_a_second(HOST_PER_SECOND),
            f"scrape: at {HOST_PER_SECOND} a second and host at most"
            f" {_in_a_second(HOST_PER_SECOND)} in any",
            "",
        ),
        _memory(peaks),
    ]
    return [verdict for verdict in found if verdict is not None]


def write_batches(output: Path, results: Results, amounts: Amounts) -> None:
    """Writes batches.md and batches.json."""
    values, peaks = results.batches, results.batches_memory.peaks
    failures = results.failures.get("batches", [])
    document = {
        "facts": results.facts,
        "figures": values,
        "peak_memory_mb": peaks,
        "failures": failures,
    }
    (output / "batches.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "batches.md").write_text(_markdown(results, amounts))


def _markdown(results: Results, amounts: Amounts) -> str:
    facts = results.facts
    machine, options = facts["machine"], facts["options"]
    figures, targets, memory = _tables(results.batches, results.batches_memory.peaks)
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    failures = [
        f"- FAILED: {fault.splitlines()[0]}" for fault in results.failures.get("batches", [])
    ]
    return "\n".join(
        [
            "# Bench: batches",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}; {options['rounds']} rounds. "
            "Figures are this machine's; only the ratios are comparable.",
            "",
            f"- PostgreSQL: {postgres}",
            f"- A batch of {amounts.lines:,} lines of 100 bytes; `coatcheck serve`, workers and "
            "blobs on the same machine. A worker that serves no tasks ingests the list; the "
            "two that drain it start afterwards.",
            f"- A scrape of {amounts.urls:,} pages of {HOSTS} hosts: at most {CONCURRENCY} at once,"
            f" {PER_SECOND} a second, and {HOST_PER_SECOND} a second of each host.",
            "",
            figures,
            "",
            "## Targets",
            "",
            targets,
            "",
            "## Memory",
            "",
            memory,
            "",
            *failures,
        ]
    )


def _in_a_second(per_second: int) -> int:
    return int(1 + per_second * (1 + _BURST_SECONDS + _JITTER_SECONDS))


def _memory(peaks: Peaks) -> Verdict | None:
    if not peaks:
        return None
    name, most = max(peaks.items(), key=lambda pair: pair[1])
    return Verdict(
        f"no process above {MEMORY_MEGABYTES_MAX} MB",
        f"{most:,.0f} MB, {name}",
        most <= MEMORY_MEGABYTES_MAX,
    )


def _ratio(
    values: Values, figure: BatchFigure, base: BatchFigure, least: float, wanted: str
) -> Verdict | None:
    mine, theirs = values.get(figure), values.get(base)
    if not mine or not theirs:
        return None
    ratio = Spread.of(mine).median / Spread.of(theirs).median
    return Verdict(wanted, f"{ratio:.2f}", ratio >= least)


def _most(
    values: Values, figure: BatchFigure, most: float, wanted: str, unit: str
) -> Verdict | None:
    """The maximum over all rounds, not the median."""
    mine = values.get(figure)
    if not mine:
        return None
    return Verdict(wanted, f"{max(mine):,.1f} {unit}".strip(), max(mine) <= most)


def _least(values: Values, figure: BatchFigure, least: float, wanted: str) -> Verdict | None:
    mine = values.get(figure)
    if not mine:
        return None
    median = Spread.of(mine).median
    return Verdict(wanted, f"{median:,.0f}", median >= least)
