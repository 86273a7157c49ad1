"""The verdict of a soak run: which series are judged, and with which tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.soak.slopes import Slope, Tolerance, slope_of

Rows = Sequence[Mapping[str, float]]

TOLERANCES: Final[Sequence[tuple[str, Tolerance]]] = (
    (" MB", Tolerance(part=0.10, amount=8.0)),
    ("temporary files", Tolerance(part=0.25, amount=20.0)),
    (" files", Tolerance(part=0.10, amount=4.0)),
    ("connections", Tolerance(part=0.10, amount=3.0)),
    ("processes", Tolerance(part=0.10, amount=3.0)),
    ("oldest transaction s", Tolerance(part=0.50, amount=5.0)),
    ("blobs", Tolerance(part=0.25, amount=100.0)),
    ("dead rows", Tolerance(part=0.50, amount=20_000.0)),
    (" p50 ms", Tolerance(part=0.50, amount=10.0)),
    (" p95 ms", Tolerance(part=0.50, amount=100.0)),
)
"""Tolerances by the end of a series' name. The first match counts."""

NOT_JUDGED: Final = frozenset({"records MB", "records", "rows", "ended a second", "seconds"})
"""Series that grow with the work done, or that depend on the load."""
JUDGED_SECONDS_MIN: Final = 600.0
"""The minimum length of the second half: before, processes still warm up."""


@dataclass(frozen=True)
class Judgement:
    name: str
    slope: Slope

    def row(self) -> list[str]:
        slope = self.slope
        return [
            self.name,
            f"{slope.level:,.1f}",
            f"{slope.growth:+,.2f}",
            f"{slope.growth_at_least:+,.2f} to {slope.growth_at_most:+,.2f}",
            f"{100 * slope.part:+.1f} %",
            f"{slope.tolerance:,.1f}",
            "GROWS" if slope.grows else "no slope",
        ]


def judged(rows: Rows) -> list[Judgement]:
    """Every judged series with enough points, by name."""
    found = []
    for name in names(rows):
        tolerance = tolerance_of(name)
        if tolerance is None:
            continue
        times, values = series(rows, name)
        slope = slope_of(times, values, tolerance)
        if slope is not None:
            found.append(Judgement(name, slope))
    return found


def names(rows: Rows) -> list[str]:
    """The names of all series, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def series(rows: Rows, name: str) -> tuple[list[float], list[float]]:
    """The times and values of a series; it has gaps while a process was down."""
    points = [(row["seconds"], row[name]) for row in rows if name in row]
    return [time for time, _ in points], [value for _, value in points]


def tolerance_of(name: str) -> Tolerance | None:
    """None if the series is not judged."""
    if name in NOT_JUDGED:
        return None
    return next((tolerance for end, tolerance in TOLERANCES if name.endswith(end)), None)


def markdown(rows: Rows, title: str, seen: Sequence[str] = ()) -> str:
    """The verdict as Markdown. ``seen`` are the violations that the load saw."""
    found = judged(rows)
    growing = [each.name for each in found if each.slope.grows]
    half = (rows[-1]["seconds"] - rows[0]["seconds"]) / 2 if rows else 0.0
    lines = [f"# Soak: {title}", ""]
    if not found:
        lines.append("**Too short to judge.**")
    elif growing:
        lines.append(f"**Grows: {', '.join(growing)}.**")
    else:
        lines.append(f"**No slope** in {len(found)} series.")
    if seen:
        lines += ["", "**The load saw violations:**", "", *(f"- {each}" for each in seen)]
    if half < JUDGED_SECONDS_MIN:
        lines += ["", "The second half is shorter than ten minutes: processes still warm up."]
    head = ["series", "level", "growth", "95 %", "of level", "tolerated", ""]
    table = [head, ["---", *["---:"] * 5, "---"], *(each.row() for each in found)]
    lines += ["", "Growth is over the second half of the run.", ""]
    lines += [f"| {' | '.join(row)} |" for row in table]
    return "\n".join(lines) + "\n"
