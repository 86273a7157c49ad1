"""L. No false rescue: a job is taken only from a worker whose process has ended, or that was silent
for longer than it promised; and a worker that nothing has happened to is never silent for so long.
Who is paused, cut off or stalled is not dead, whatever has happened to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from chaos.checker.evidence import Evidence, Row
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt

CHECK = "false rescue"
_SLACK_SECONDS = 0.05
_AFTERMATH_SECONDS = 5.0
"""What a fault leaves behind: connections that are made anew, a process that starts, a database
that recovers, all of it on a machine that is busy."""
_RETURN_SECONDS = 2.0
"""Who is heard of again just as its jobs are taken was silent until then: its trouble ended within
so long before that."""
EVERYBODYS = "postgres"
DRAIN = "drain"

_RESCUES = """
SELECT h.id, h.endpoint, h.lane, extract(epoch FROM h.at) AS at, h.silent, h.promised, h.died,
       w.name
FROM job_history AS h
LEFT JOIN worker_history AS w ON w.boot = h.lease >> 40
WHERE h.crashes > 0 AND h.before IS NOT NULL
ORDER BY h.number
"""


@dataclass(frozen=True)
class Trouble:
    """From when to when somebody had a reason to be silent, by the history's clock."""

    target: str
    begin: float
    end: float

    def strikes(self, targets: Collection[str], since: float, until: float) -> bool:
        """Whether it has to do with one of these, at some time between the two."""
        return self.target in targets and self.begin <= until and self.end >= since


async def no_false_rescue(evidence: Evidence) -> list[Finding]:
    began = next((row["wall"] for row in evidence.rows("began")), None)
    troubles = list(_troubles(evidence.history))
    members = member_pids(evidence.history)
    ended = _ends(evidence.history)
    found = []
    for row in await evidence.sql.fetch(_RESCUES):
        pid = pid_of(row["name"], members)
        holder = row["name"] if pid is None else members[pid]
        silent, promised = row["silent"], row["promised"]
        job = f"job {spelt(row['id'])} of {row['endpoint']} ({row['lane']})"
        if row["died"] and began is not None and pid is not None:
            if ended.get(pid, float("inf")) > float(row["at"]) - began + _AFTERMATH_SECONDS:
                found.append(_finding(f"{job} was taken from {holder} as dead, which it was not"))
            continue
        was_heard = silent is not None and silent < promised - _SLACK_SECONDS
        if began is not None and pid is not None:
            at = float(row["at"]) - began
            since = at - (silent + _RETURN_SECONDS if was_heard else _excused(silent, promised))
            targets = (members[pid], process(pid), EVERYBODYS)
            if any(each.strikes(targets, since, at) for each in troubles):
                continue
        if was_heard:
            found.append(
                _finding(
                    f"{job} was taken from {holder}, which had been heard of {silent:.2f} s ago "
                    f"and had promised {promised:g} s"
                )
            )
        elif began is not None and pid is not None:
            lasting = "for good" if silent is None else f"for {silent:.1f} s"
            found.append(
                _finding(f"{job}: {holder} was silent {lasting}, and nothing had happened to it")
            )
    return found


def _excused(silent: float | None, promised: float | None) -> float:
    """How far back a trouble may lie that made somebody silent."""
    return max(silent or 0.0, promised or 0.0) + _AFTERMATH_SECONDS


def _troubles(history: Iterable[Row]) -> Iterable[Trouble]:
    """Faults; the deaths of processes, which last; and the times without PostgreSQL.

    To be told to stop is no trouble: whoever drains gives back what it holds.
    """
    open_faults: dict[object, Row] = {}
    away: float | None = None
    for row in history:
        if row["kind"] == "fault" and row["name"] != DRAIN:
            number = row.get("number", (row["name"], row["target"]))
            if row["phase"] == "begin":
                open_faults[number] = row
            elif (begun := open_faults.pop(number, None)) is not None:
                yield Trouble(row["target"], begun["t"], row["t"])
        elif row["kind"] == "process" and row["name"] == EVERYBODYS:
            if row["phase"] == "end":
                away = row["t"]
            elif away is not None:
                yield Trouble(EVERYBODYS, away, row["t"])
                away = None
        elif row["kind"] == "process" and row["phase"] == "end" and row.get("code") != 0:
            yield Trouble(process(row["pid"]), row["t"], float("inf"))
    for row in open_faults.values():
        yield Trouble(row["target"], row["t"], float("inf"))


def _ends(history: Iterable[Row]) -> dict[int, float]:
    """When each process was seen to have ended."""
    return {
        row["pid"]: row["t"]
        for row in history
        if row["kind"] == "process" and row["phase"] == "end"
    }


def process(pid: int) -> str:
    """A process as a target of its own: what kills it does not touch its successor."""
    return f"process {pid}"


def member_pids(history: Iterable[Row]) -> dict[int, str]:
    """Which member each process was."""
    return {
        row["pid"]: row["name"]
        for row in history
        if row["kind"] == "process" and row["phase"] == "begin"
    }


def pid_of(worker: str | None, members: dict[int, str]) -> int | None:
    """A worker is registered as ``host:pid``, with its service behind if it has one of its own."""
    for part in (worker or "").split(":")[1:]:
        if part.isdigit() and int(part) in members:
            return int(part)
    return None


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "L", detail)
