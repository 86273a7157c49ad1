"""L. No false rescue: a job is taken only from a worker whose process has ended, or that was silent
for longer than its lease; and a worker without a fault is never silent for that long. A paused,
disconnected or stalled worker is not dead."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from chaos.checker.evidence import Evidence, Row
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt

CHECK = "false rescue"
_SLACK_SECONDS = 0.05
_AFTERMATH_SECONDS = 5.0
"""The time after a fault for reconnections, process starts and database recovery, on a busy
machine."""
_RETURN_SECONDS = 2.0
"""A worker whose heartbeat returns just as its jobs are taken was silent until then: its fault
ended within this time before."""
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
    """A period in which a process had a reason to be silent, by the history's clock."""

    target: str
    begin: float
    end: float

    def strikes(self, targets: Collection[str], since: float, until: float) -> bool:
        """Whether it affects one of these targets at some time between the two."""
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
    """How old a fault may be that explains a silence."""
    return max(silent or 0.0, promised or 0.0) + _AFTERMATH_SECONDS


def _troubles(history: Iterable[Row]) -> Iterable[Trouble]:
    """Faults; the deaths of processes, which last; and the times without PostgreSQL.

    SIGTERM explains no silence: a draining worker gives back its jobs.
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
    """A single process as a target: a kill does not affect its successor."""
    return f"process {pid}"


def member_pids(history: Iterable[Row]) -> dict[int, str]:
    """The member of each process."""
    return {
        row["pid"]: row["name"]
        for row in history
        if row["kind"] == "process" and row["phase"] == "begin"
    }


def pid_of(worker: str | None, members: dict[int, str]) -> int | None:
    """A worker is registered as ``host:pid``, with a suffix if it serves one service."""
    for part in (worker or "").split(":")[1:]:
        if part.isdigit() and int(part) in members:
            return int(part)
    return None


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "L", detail)
