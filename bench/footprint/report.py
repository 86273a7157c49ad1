"""The report of the footprint scenario: the table, with the limits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.footprint.figures import ROWS, Row
from bench.footprint.scenario import IDLE_SECONDS, RUNS
from bench.measure import Spread
from bench.results import Results
from bench.tables import table

Values = Mapping[str, Sequence[float]]


def footprint_tables(results: Results) -> str:
    """The complete report, for the terminal."""
    return _figure_table(results.footprint) if results.footprint else ""


def write_footprint(output: Path, results: Results) -> None:
    """Writes footprint.md and footprint.json."""
    document = {
        "facts": results.facts,
        "figures": results.footprint,
        "failures": results.failures.get("footprint", []),
    }
    (output / "footprint.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "footprint.md").write_text(_markdown(results))


def _figure_table(values: Values) -> str:
    rows = [
        [f"{row.title} ({row.unit})", _shown(row, measured), _limit(row), str(len(measured))]
        for row in ROWS
        if (measured := values.get(row.figure))
    ]
    return table(["footprint", "median (least..greatest)", "limit", "rounds"], rows)


def _shown(row: Row, measured: Sequence[float]) -> str:
    spread = Spread.of(measured)
    median = f"{spread.median:,.1f}"
    if row.limit is not None and spread.median > row.limit:
        median = f"**{median}**"
    return f"{median} ({spread.least:,.1f}..{spread.greatest:,.1f})"


def _limit(row: Row) -> str:
    return "-" if row.limit is None else f"{row.limit:,.0f}"


def _markdown(results: Results) -> str:
    facts = results.facts
    machine, options = facts["machine"], facts["options"]
    failures = [
        f"- FAILED: {fault.splitlines()[0]}" for fault in results.failures.get("footprint", [])
    ]
    return "\n".join(
        [
            "# Bench: footprint",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}; {options['rounds']} rounds. "
            "Figures are this machine's.",
            "",
            f"- CPU is user and system time of the whole process, its interpreter included; of the "
            f"first two, the median of {RUNS} runs in each round. All bytecode has been written.",
            f"- Memory is of one `coatcheck serve` and one `coatcheck worker` with all products, "
            f"idle for {IDLE_SECONDS:g} s, from the kernel's `smaps_rollup`. A MB is 1,000,000 "
            "bytes.",
            "- A figure above its limit is set in bold.",
            "",
            _figure_table(results.footprint),
            "",
            *failures,
        ]
    )
