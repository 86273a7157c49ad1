"""Recovery times after faults, as far as a run shows them.

In a run, one fault follows another before the first has ended. ``chaos/recovery`` measures the best
case: one fault, and then a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from chaos.checker.evidence import Evidence
from chaos.checker.exits import AT_WORK

POSTGRES = "postgres"


async def recoveries(evidence: Evidence) -> dict[str, float]:
    """Seconds by measurement."""
    answers = [row["t"] for row in evidence.rows("ok")]
    ends = [row["t"] for row in evidence.rows("seen") if row["terminal"]]
    return {
        "longest time without an acknowledgement (s)": _longest_gap(answers),
        "longest time without an end seen (s)": _longest_gap(ends),
        **_told("from the end of a process to the next at work", _back_at_work(evidence)),
        **_told("from PostgreSQL's return to the first claim", await _first_claims(evidence)),
    }


def _back_at_work(evidence: Evidence) -> Iterable[float]:
    """From the end of a process until its successor is ready."""
    began = _began(evidence)
    at_work: dict[str, float] = {}
    for path, row in evidence.log_rows(lambda line: any(words in line for words in AT_WORK)):
        at_work.setdefault(path.name, datetime.fromisoformat(row["time"]).timestamp() - began)
    away: dict[str, float] = {}
    for row in evidence.rows("process"):
        if row["phase"] == "end":
            away.setdefault(row["name"], row["t"])
        elif row["phase"] == "begin" and row.get("log") in at_work and row["name"] in away:
            yield at_work[row["log"]] - away.pop(row["name"])


async def _first_claims(evidence: Evidence) -> list[float]:
    """From PostgreSQL's return to the first claim, if it stays up that long."""
    began = _began(evidence)
    rows = await evidence.sql.fetch(
        "SELECT extract(epoch FROM at)::double precision - $1 AS t FROM job_history"
        " WHERE after = 'dispatching' ORDER BY at",
        began,
    )
    claims = [row["t"] for row in rows]
    moments = [
        (row["t"], row["phase"])
        for row in evidence.rows("process")
        if row["name"] == POSTGRES and row["phase"] in ("begin", "end")
    ]
    found = []
    for (since, phase), (until, _) in pairwise([*moments, (float("inf"), "end")]):
        if phase == "begin" and since != moments[0][0]:
            first = next((claim for claim in claims if since <= claim < until), None)
            found += [] if first is None else [first - since]
    return found


def _began(evidence: Evidence) -> float:
    return next((float(row["wall"]) for row in evidence.rows("began")), 0.0)


def _told(what: str, seconds: Iterable[float]) -> dict[str, float]:
    times = sorted(seconds)
    if not times:
        return {}
    return {
        f"{what}, median (s)": round(median(times), 2),
        f"{what}, longest (s)": round(times[-1], 2),
    }


def _longest_gap(times: Sequence[float]) -> float:
    return round(max((b - a for a, b in pairwise(times)), default=0.0), 2)
