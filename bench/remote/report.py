"""The report of the remote scenario."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measure import Spread
from bench.remote.amounts import RESULT_BYTES, SECONDS, SLOTS, Amounts
from bench.remote.figures import ROWS
from bench.results import Results
from bench.tables import table

Values = Mapping[str, Sequence[float]]


def remote_tables(results: Results) -> str:
    """The complete report, for the terminal."""
    return _figure_table(results.remote) if results.remote else ""


def write_remote(output: Path, results: Results, amounts: Amounts) -> None:
    """Writes remote.md and remote.json."""
    document = {
        "facts": results.facts,
        "figures": results.remote,
        "failures": results.failures.get("remote", []),
    }
    (output / "remote.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "remote.md").write_text(_markdown(results, amounts))


def _figure_table(values: Values) -> str:
    rows = []
    for row in ROWS:
        measured = values.get(row.figure)
        if measured:
            spread = Spread.of(measured)
            shown = f"{spread.median:,.1f} ({spread.least:,.1f}..{spread.greatest:,.1f})"
            rows.append([f"{row.title} ({row.unit})", shown, str(len(measured))])
    return table(["remote", "median (least..greatest)", "rounds"], rows)


def _markdown(results: Results, amounts: Amounts) -> str:
    facts = results.facts
    machine, options = facts["machine"], facts["options"]
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    failures = [
        f"- FAILED: {fault.splitlines()[0]}" for fault in results.failures.get("remote", [])
    ]
    shortest, longest = SECONDS
    return "\n".join(
        [
            "# Bench: remote",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}; {options['rounds']} rounds. "
            "Figures are this machine's.",
            "",
            f"- PostgreSQL: {postgres}",
            f"- {amounts.jobs} jobs of a service whose target is a remote, submitted over HTTP to "
            f"`coatcheck serve`; one `coatcheck worker` with {SLOTS} slots a lane. Everything, the "
            "remote included, is on this machine.",
            f"- The remote (`bench/remote/place.py`) accepts a job at once and finishes it after "
            f"{shortest:g} to {longest:g} s, at random; its result has {RESULT_BYTES:,} bytes and "
            "goes to a local blob folder. It sends no callbacks: polling finds every end.",
            "- The database is fresh in every round: how long such jobs usually take is learnt "
            "meanwhile.",
            "- Late is from when the remote was done until the job's row said completed, its "
            "result stored.",
            "",
            _figure_table(results.remote),
            "",
            *failures,
        ]
    )
