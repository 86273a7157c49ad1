"""The report of the ablation scenario: each variant beside the plain one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.ablation.amounts import Amounts
from bench.ablation.figures import Measure, figure
from bench.ablation.variants import PLAIN, VARIANTS, Variant
from bench.measure import Spread
from bench.results import Results
from bench.tables import table

Values = Mapping[str, Sequence[float]]


def ablation_tables(results: Results) -> str:
    """The complete report, for the terminal."""
    return _variant_table(results.ablation) if results.ablation else ""


def write_ablation(output: Path, results: Results, amounts: Amounts) -> None:
    """Writes ablation.md and ablation.json."""
    document = {
        "facts": results.facts,
        "figures": results.ablation,
        "failures": results.failures.get("ablation", []),
    }
    (output / "ablation.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "ablation.md").write_text(_markdown(results, amounts))


def _variant_table(values: Values) -> str:
    rows = [
        [
            variant.title,
            _shown(measured, 1),
            _difference(values, variant, Measure.CPU, 1),
            _shown(values[figure(variant, Measure.WAL)], 0),
            _difference(values, variant, Measure.WAL, 0),
            _shown(values[figure(variant, Measure.HOT)], 0),
            str(len(measured)),
        ]
        for variant in VARIANTS
        if (measured := values.get(figure(variant, Measure.CPU)))
    ]
    return table(
        [
            *("jobs with", "CPU (us/job)", "to plain", "log (bytes/job)", "to plain"),
            *("HOT updates of jobs (%)", "rounds"),
        ],
        rows,
    )


def _shown(measured: Sequence[float], digits: int) -> str:
    spread = Spread.of(measured)
    median, least, greatest = (
        f"{value:,.{digits}f}" for value in (spread.median, spread.least, spread.greatest)
    )
    return median if least == greatest else f"{median} ({least}..{greatest})"


def _difference(values: Values, variant: Variant, measure: Measure, digits: int) -> str:
    """The median of the differences of each round, which share the noise of the machine."""
    plain = values.get(figure(PLAIN, measure))
    if variant is PLAIN or not plain:
        return "-"
    differences = [
        mine - theirs for mine, theirs in zip(values[figure(variant, measure)], plain, strict=True)
    ]
    return f"{Spread.of(differences).median:+,.{digits}f}"


def _markdown(results: Results, amounts: Amounts) -> str:
    facts = results.facts
    machine, options = facts["machine"], facts["options"]
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    failures = [
        f"- FAILED: {fault.splitlines()[0]}" for fault in results.failures.get("ablation", [])
    ]
    return "\n".join(
        [
            "# Bench: ablation",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}; {options['rounds']} rounds. "
            "Figures are this machine's; only the differences are comparable.",
            "",
            f"- PostgreSQL: {postgres}",
            f"- {amounts.measured_jobs:,} jobs of {amounts.organisations} organisations, in "
            f"{amounts.exchanges} exchanges one after the other, each of which completes "
            f"{amounts.batch} jobs and claims the next {amounts.batch}. Each variant has a fresh "
            "database, without autovacuum.",
            "- CPU is that of the PostgreSQL sessions that the exchange uses, by the kernel's "
            "count; the log is the write-ahead log of the whole server. Submitting is not "
            "measured.",
            "- The differences to plain jobs are medians of the differences in each round.",
            "",
            _variant_table(results.ablation),
            "",
            *failures,
        ]
    )
