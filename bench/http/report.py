"""The HTTP part of the report: the table with ratios to the echo, and the targets."""

from collections.abc import Mapping, Sequence

from bench.http.figures import ROWS, HttpFigure
from bench.measure import Spread
from bench.tables import table
from bench.targets import Verdict

Values = Mapping[str, Sequence[float]]


def http_table(values: Values) -> str:
    rows = []
    echo = _median(values, HttpFigure.ECHO)
    for row in ROWS:
        measured = values.get(row.figure)
        if not measured:
            continue
        spread = Spread.of(measured)
        digits = 0 if row.unit == "requests/s" else 1
        median, least, greatest = (
            f"{value:,.{digits}f}" for value in (spread.median, spread.least, spread.greatest)
        )
        figures = f"{median} ({least}..{greatest})"
        ratio = f"{spread.median / echo:.2f}" if echo and row.unit == "requests/s" else "-"
        rows.append([f"{row.title} ({row.unit})", figures, ratio])
    return table(["over HTTP", "median (least..greatest)", "to the echo"], rows)


def http_verdicts(values: Values) -> list[Verdict]:
    """The targets whose figures this run has."""
    found = [
        _ratio(values, HttpFigure.SUBMIT, HttpFigure.ECHO, 0.5, "submit: at least 0.5 of the echo"),
        _ratio(
            values,
            HttpFigure.SUBMIT,
            HttpFigure.INSERT,
            2.5,
            "submit: at least 2.5 times FastAPI with one INSERT",
        ),
        _ratio(values, HttpFigure.STATUS, HttpFigure.ECHO, 0.6, "status: at least 0.6 of the echo"),
        _most(values, HttpFigure.PACED_SUBMIT_P99, 100, "submit at 1,000/s: p99 under 100 ms"),
        _most(values, HttpFigure.PACED_STATUS_P99, 100, "status read meanwhile: p99 under 100 ms"),
        _most(values, HttpFigure.PREFER_WAIT_P50, 10, "Prefer: wait: p50 at most 10 ms after"),
        _most(values, HttpFigure.LONG_POLL_P50, 10, "long-poll: p50 at most 10 ms after"),
    ]
    return [verdict for verdict in found if verdict is not None]


def _median(values: Values, figure: HttpFigure) -> float | None:
    measured = values.get(figure)
    return Spread.of(measured).median if measured else None


def _ratio(
    values: Values, figure: HttpFigure, base: HttpFigure, least: float, wanted: str
) -> Verdict | None:
    mine, theirs = _median(values, figure), _median(values, base)
    if mine is None or theirs is None:
        return None
    return Verdict(wanted, f"{mine / theirs:.2f}", mine / theirs >= least)


def _most(values: Values, figure: HttpFigure, most: float, wanted: str) -> Verdict | None:
    mine = _median(values, figure)
    return None if mine is None else Verdict(wanted, f"{mine:.1f} ms", mine <= most)
