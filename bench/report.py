"""The report in Markdown: the table, the ratios, the targets, and the settings."""

from collections.abc import Sequence

from bench.catalogue import DRAIN_COSTS, FIGURES, Figure
from bench.contenders.contract import Contender
from bench.http.report import http_table, http_verdicts
from bench.measure import Spread
from bench.results import Results
from bench.tables import table
from bench.targets import verdicts

NOTHING = "-"
WHOLE_UNITS = {"jobs/s", "bytes/job"}


def markdown(results: Results, contenders: Sequence[Contender], reference: Contender) -> str:
    """The whole report. Figures without a value in this run have no row."""
    figures = [figure for figure in FIGURES if _is_measured(results, contenders, figure)]
    sections = [
        "# Bench: the last run",
        _conditions(results),
        _figure_table(results, contenders, figures),
        _ratio_table(results, contenders, reference, figures),
        _costs(results, contenders),
        _http(results),
        _target_table(results),
        _kept_table(results, contenders),
        _notes(results, contenders),
        _failures(results),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def figure_table(results: Results, contenders: Sequence[Contender]) -> str:
    """The tables alone, for the terminal."""
    figures = [figure for figure in FIGURES if _is_measured(results, contenders, figure)]
    tables = [
        _figure_table(results, contenders, figures) if figures else "",
        _cost_table(results, contenders),
        _http(results),
    ]
    return "\n\n".join(each for each in tables if each)


def _is_measured(results: Results, contenders: Sequence[Contender], figure: Figure) -> bool:
    return any(results.spread(contender.name, figure) for contender in contenders)


def _conditions(results: Results) -> str:
    facts = results.facts
    machine, options = facts["machine"], facts["options"]
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    redis = facts["redis"] or "not run"
    return "\n".join(
        [
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}.",
            f"{options['rounds']} rounds{', quick sizes' if options['quick'] else ''}, contenders "
            "right after each other in each; medians, with least to greatest in brackets. Figures "
            "are this machine's; only the ratios are comparable.",
            "",
            f"- PostgreSQL: {postgres}",
            f"- Redis: {redis}",
        ]
    )


def _figure_table(
    results: Results, contenders: Sequence[Contender], figures: Sequence[Figure]
) -> str:
    rows = (
        [
            f"{figure.title} ({figure.unit})",
            *(_cell(results.spread(contender.name, figure), figure) for contender in contenders),
        ]
        for figure in figures
    )
    return table(["", *(contender.label for contender in contenders)], rows)


def _cell(spread: Spread | None, figure: Figure) -> str:
    if spread is None:
        return NOTHING
    median, least, greatest = (
        _number(value, figure) for value in (spread.median, spread.least, spread.greatest)
    )
    return median if least == greatest else f"{median} ({least}..{greatest})"


def _number(value: float, figure: Figure) -> str:
    return f"{value:,.0f}" if figure.unit in WHOLE_UNITS else f"{value:,.1f}"


def _ratio_table(
    results: Results,
    contenders: Sequence[Contender],
    reference: Contender,
    figures: Sequence[Figure],
) -> str:
    rows = [
        [figure.title, *(_ratio(results, contender, reference, figure) for contender in contenders)]
        for figure in figures
        if results.spread(reference.name, figure)
    ]
    if not rows:
        return ""
    heading = (
        f"## Ratios to {reference.label}\n\nAbove 1 is better than {reference.label}: more jobs a "
        "second, or fewer milliseconds.\n\n"
    )
    return heading + table(["", *(contender.label for contender in contenders)], rows)


def _ratio(results: Results, contender: Contender, reference: Contender, figure: Figure) -> str:
    ratio = results.ratio(contender.name, reference.name, figure)
    return NOTHING if ratio is None else f"{ratio:.2f}"


def _costs(results: Results, contenders: Sequence[Contender]) -> str:
    costs = _cost_table(results, contenders)
    if not costs:
        return ""
    heading = (
        "## What a job costs in a drain\n\nCPU time by the kernel's count, over the timed part. "
        "What served the workers is their PostgreSQL sessions together, or Redis. The log is that "
        "of the whole server.\n\n"
    )
    return heading + costs


def _cost_table(results: Results, contenders: Sequence[Contender]) -> str:
    figures = [
        figure
        for costs in DRAIN_COSTS.values()
        for figure in costs.rows
        if _is_measured(results, contenders, figure)
    ]
    return _figure_table(results, contenders, figures) if figures else ""


def _http(results: Results) -> str:
    if not results.http:
        return ""
    heading = (
        "## Over HTTP\n\nwrk, 64 kept-alive connections, one server process; the comparison "
        "servers run on the same uvicorn, uvloop and httptools. Every submit is in PostgreSQL "
        "before its answer: the bench counts them.\n\n"
    )
    return heading + http_table(results.http)


def _target_table(results: Results) -> str:
    rows = [
        [verdict.wanted, verdict.found, "yes" if verdict.reached else "**no**"]
        for verdict in [*verdicts(results), *http_verdicts(results.http)]
    ]
    if not rows:
        return ""
    return "## Targets\n\n" + table(["wanted", "found", "reached"], rows)


def _kept_table(results: Results, contenders: Sequence[Contender]) -> str:
    rows = [
        [
            contender.label,
            contender.keeps,
            f"{kept['records']:,}",
            f"{kept['results']:,}",
        ]
        for contender in contenders
        if (kept := results.kept.get(contender.name)) is not None
    ]
    if not rows:
        return ""
    heading = "## What each keeps after finishing a job\n\nCounted in the store after a drain.\n\n"
    return heading + table(["", "keeps", "records found", "results found"], rows)


def _notes(results: Results, contenders: Sequence[Contender]) -> str:
    lines = ["## Settings", ""]
    for contender in contenders:
        lines.append(f"- {contender.label} {results.facts['versions'][contender.name]}")
        lines += [f"    - {setting}" for setting in contender.settings]
    lines += [f"- not run: {name}: {reason}" for name, reason in results.skipped.items()]
    return "\n".join(lines)


def _failures(results: Results) -> str:
    if not results.failures:
        return ""
    lines = ["## Failures", ""]
    for name, faults in results.failures.items():
        lines += [f"- {name}: {fault.splitlines()[0]}" for fault in faults]
    return "\n".join(lines)
