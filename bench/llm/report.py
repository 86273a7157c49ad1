"""The report of the llm scenario: the table, and the targets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.llm.amounts import STREAMS, TOKENS_PER_SECOND, Amounts
from bench.llm.figures import ROWS, LlmFigure
from bench.measure import Spread
from bench.results import Results
from bench.tables import table
from bench.targets import Verdict

LATER_MS_MAX = 25
RATE_SHARE_MIN = 0.95

Values = Mapping[str, Sequence[float]]


def llm_tables(results: Results) -> str:
    """The complete report, for the terminal."""
    if not results.llm:
        return ""
    return "\n\n".join([_figure_table(results.llm), _target_table(results.llm)])


def write_llm(output: Path, results: Results, amounts: Amounts) -> None:
    """Writes llm.md and llm.json."""
    document = {
        "facts": results.facts,
        "figures": results.llm,
        "failures": results.failures.get("llm", []),
    }
    (output / "llm.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "llm.md").write_text(_markdown(results, amounts))


def _figure_table(values: Values) -> str:
    rows = []
    for row in ROWS:
        measured = values.get(row.figure)
        if measured:
            spread = Spread.of(measured)
            shown = f"{spread.median:,.1f} ({spread.least:,.1f}..{spread.greatest:,.1f})"
            rows.append([f"{row.title} ({row.unit})", shown, str(len(measured))])
    return table(["llm", "median (least..greatest)", "times"], rows)


def _target_table(values: Values) -> str:
    return table(
        ["target", "found", "reached"],
        [
            [verdict.wanted, verdict.found, "yes" if verdict.reached else "**no**"]
            for verdict in _verdicts(values)
        ],
    )


def _verdicts(values: Values) -> list[Verdict]:
    """The targets whose figures this run has."""
    found = []
    for figure, which in ((LlmFigure.LATER_P50, "p50"), (LlmFigure.LATER_P95, "p95")):
        if later := values.get(figure):
            median = Spread.of(later).median
            found.append(
                Verdict(
                    f"first token: at most {LATER_MS_MAX} ms later than direct, {which}",
                    f"{median:.1f} ms",
                    median <= LATER_MS_MAX,
                )
            )
    through, direct = values.get(LlmFigure.THROUGH_RATE), values.get(LlmFigure.DIRECT_RATE)
    if through and direct:
        share = Spread.of(through).median / Spread.of(direct).median
        found.append(
            Verdict(
                f"token rate: at least {RATE_SHARE_MIN:.0%} of direct",
                f"{share:.1%}",
                share >= RATE_SHARE_MIN,
            )
        )
    return found


def _markdown(results: Results, amounts: Amounts) -> str:
    facts = results.facts
    machine, options = facts["machine"], facts["options"]
    postgres = ", ".join(f"{name} {value}" for name, value in facts["postgres"].items())
    failures = [f"- FAILED: {fault.splitlines()[0]}" for fault in results.failures.get("llm", [])]
    return "\n".join(
        [
            "# Bench: llm",
            "",
            f"Measured {machine['measured_at']}: {machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; {machine['system']}; Python {machine['python']}; "
            f"load before the run {machine['load_before'][0]}; {options['rounds']} rounds. "
            "Figures are this machine's; only differences and ratios are comparable.",
            "",
            f"- PostgreSQL: {postgres}",
            "- The upstream is `examples/ollama_upstream` in its own process: "
            f"{TOKENS_PER_SECOND} tokens a second and stream, the model loaded, the first token at "
            "once. It is called by the same client directly and through `coatcheck serve` and one "
            "`coatcheck worker` on the same machine, alternately; both ways must give the "
            "same text.",
            f"- First token: {amounts.chats} chats each way and round, one at a time, from sending "
            "the request until the line with the first token is there.",
            f"- Rate: {STREAMS} streams of {amounts.stream_tokens} tokens at once, {amounts.runs} "
            "times each way and round; tokens of all streams, each from its request to its last "
            "token.",
            "",
            _figure_table(results.llm),
            "",
            "## Targets",
            "",
            _target_table(results.llm),
            "",
            *failures,
        ]
    )
