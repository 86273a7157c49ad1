"""D. A handler ran at least once for every completed job."""

from __future__ import annotations

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt

CHECK = "executions"
SERVICE = "chaos"
"""The service whose handlers record their executions (``chaos/handlers.py``)."""


async def completed_jobs_were_executed(evidence: Evidence) -> list[Finding]:
    executed = {row["uuid"].replace("-", "") for row in evidence.executions}
    rows = await evidence.sql.fetch(
        """
        SELECT id, endpoint FROM jobs
        WHERE state = 'completed' AND split_part(endpoint, '.', 1) = $1
        """,
        SERVICE,
    )
    return [
        Finding(CHECK, "D", f"{row['endpoint']} {spelt(row['id'])} completed, and no handler ran")
        for row in rows
        if row["id"].hex not in executed
    ]
