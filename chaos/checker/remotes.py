"""K. At most one live remote execution per attempt: a token never starts a second execution, and a
job gets another token only when the execution of the previous one is over."""

from __future__ import annotations

from collections import defaultdict

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding

CHECK = "remote work"
_NOT_IN_VAIN = frozenset({"running", "completed"})


async def one_live_execution(evidence: Evidence) -> list[Finding]:
    works: defaultdict[str, set[str]] = defaultdict(set)
    found = []
    for row in evidence.rows("upstream"):
        if row.get("event") != "spawned":
            continue
        works[row["token"]].add(row["id"])
        if (row.get("live") or 0) > 1:
            found.append(
                _finding(f"{row['id']} was spawned while {row['live'] - 1} for the same job ran on")
            )
        if row.get("fresh") and not _NOT_IN_VAIN.isdisjoint(row.get("before") or ()):
            before = ", ".join(row["before"])
            found.append(_finding(f"{row['id']} was spawned after works of the same job: {before}"))
    return found + [
        _finding(f"token {token[:12]} began {sorted(ids)}")
        for token, ids in works.items()
        if len(ids) > 1
    ]


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "K", detail)
