"""The report of the dashboard scenario: the table, and the target."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.dashboard.amounts import Amounts
from bench.dashboard.figures import PAGES, History, TimedPage, figure
from bench.dashboard.scenario import PERCENTS
from bench.results import Results
from bench.tables import table

SLOWER_MAX = 1.5
"""How much slower the median of a page may be with the long history."""

Values = Mapping[str, Sequence[float]]


def dashboard_tables(results: Results, amounts: Amounts) -> str:
    """The complete report, for the terminal."""
    return _page_table(results.dashboard, amounts) if results.dashboard else ""


def write_dashboard(output: Path, results: Results, amounts: Amounts) -> None:
    """Writes dashboard.md and dashboard.json."""
    document = {
        "facts": results.facts,
        "figures": results.dashboard,
        "failures": results.failures.get("dashboard", []),
    }
    (output / "dashboard.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "dashboard.md").write_text(_markdown(results, amounts))


def _page_table(values: Values, amounts: Amounts) -> str:
    heads = [
        f"{jobs:,} jobs, p{percent}" for jobs in (amounts.few, amounts.many) for percent in PERCENTS
    ]
    rows = [
        [page.title, *_times(values, page), _ratio(values, page)]
        for page in PAGES
        if values.get(figure(page, History.MANY, 50))
    ]
    return table(["page (ms)", *heads, "ratio of p50"], rows)


def _times(values: Values, page: TimedPage) -> list[str]:
    return [
        f"{values[figure(page, history, percent)][0]:,.1f}"
        for history in History
        for percent in PERCENTS
    ]


def _ratio(values: Values, page: TimedPage) -> str:
    few, many = (values[figure(page, history, 50)][0] for history in History)
    ratio = many / few
    return f"{ratio:.2f}" if ratio <= SLOWER_MAX else f"**{ratio:.2f}**"


def _markdown(results: Results, amounts: Amounts) -> str:
    facts = results.facts
    machine = facts["machine"]
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    failures = [f"- failed: {text}" for text in results.failures.get("dashboard", [])]
    return "\n".join(
        [
            "# Bench: dashboard",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; load "
            f"before the run {machine['load_before'][0]}. Figures are this machine's; only the "
            "ratios travel.",
            "",
            f"- PostgreSQL: {postgres}",
            f"- Two `coatcheck serve`, one on a database of {amounts.few:,} jobs and one of "
            f"{amounts.many:,}, all of one organisation, over the last 20 days; "
            f"{amounts.waiting:,} of each wait. The rows are written by SQL.",
            f"- Each page is asked for {amounts.times} times on each, alternately, by one visitor "
            "on a connection that is kept: from sending the request until the whole page is there.",
            f"- A ratio above {SLOWER_MAX} is set in bold: such a page would grow with history.",
            "",
            _page_table(results.dashboard, amounts),
            "",
            *failures,
        ]
    )
