"""D. Each job reached its expected final state, or one that faults explain."""

from __future__ import annotations

from chaos.checker import acknowledged
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import uuids_of
from coatcheck.domain.limits import CRASHES_MAX

CHECK = "expected ends"


async def ends_as_expected(evidence: Evidence) -> list[Finding]:
    promised = {each.job: each for each in acknowledged.jobs(evidence) if each.call.expect != "any"}
    ids = uuids_of(promised)
    rows = await evidence.sql.fetch(
        """
        SELECT id, state::text AS state, endpoint, error_code, error_message, failures, crashes
        FROM jobs WHERE id = ANY($1) AND state IN ('completed', 'failed', 'cancelled')
        """,
        list(ids),
    )
    found = []
    for row in rows:
        job = ids[row["id"]]
        expected = promised[job].call.expect
        if row["state"] == expected:
            continue
        if row["error_code"] == "worker_lost" and row["crashes"] > CRASHES_MAX:
            continue  # its worker was killed too often: attempts are bounded
        found.append(
            Finding(
                CHECK,
                "D",
                f"{row['endpoint']} {job} is {row['state']} ({row['error_code']}: "
                f"{row['error_message']}) after {row['failures']} failures and {row['crashes']} "
                f"crashes, and should be {expected}",
            )
        )
    return found
