"""C. The result of a job comes from its lease holder: that process and that attempt."""

from __future__ import annotations

import json
from typing import Any

from chaos.checker.evidence import Evidence
from chaos.checker.executions import SERVICE
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt
from chaos.checker.rescues import member_pids, pid_of

CHECK = "holders"

_COMPLETED = """
SELECT h.id, h.endpoint, h.attempts, w.name, j.result
FROM job_history AS h
JOIN jobs AS j ON j.org_id = h.org_id AND j.id = h.id
LEFT JOIN worker_history AS w ON w.boot = h.lease >> 40
WHERE h.after = 'completed' AND split_part(h.endpoint, '.', 1) = $1
"""


async def results_are_of_the_holder(evidence: Evidence) -> list[Finding]:
    """Handlers return the id of their execution, and record its process."""
    members = member_pids(evidence.history)
    pids = {row["execution"]: row["pid"] for row in evidence.executions if "execution" in row}
    found = []
    for row in await evidence.sql.fetch(_COMPLETED, SERVICE):
        result = _read(row["result"])
        holder, ran_in = pid_of(row["name"], members), pids.get(result.get("execution"))
        job = f"{row['endpoint']} {spelt(row['id'])}"
        # An isolated handler has its own process, which holds no lease.
        if holder is not None and ran_in in members and ran_in != holder:
            found.append(
                _finding(
                    f"{job} was held by {members[holder]} (process {holder}), and completed with "
                    f"the result of {members[ran_in]} (process {ran_in})"
                )
            )
        elif result.get("attempt", row["attempts"]) != row["attempts"]:
            found.append(
                _finding(
                    f"{job} completed at attempt {row['attempts']} with the result of attempt "
                    f"{result['attempt']}"
                )
            )
    return found


def _read(result: bytes | None) -> dict[str, Any]:
    read = json.loads(result) if result else None
    return read if isinstance(read, dict) else {}


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "C", detail)
