"""The summary of a run in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chaos.checker import acknowledged
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.receipts import duplicates
from chaos.checker.recoveries import recoveries
from chaos.checker.stale import refused_results

_JOBS = """
SELECT count(*) FILTER (WHERE run_id IS NULL) AS jobs,
       count(*) FILTER (WHERE run_id IS NOT NULL) AS tasks,
       count(*) FILTER (WHERE state = 'completed') AS completed,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
       count(*) FILTER (WHERE state NOT IN ('completed', 'failed', 'cancelled')) AS not_ended
FROM jobs
"""
_MOVES = """
SELECT count(*) AS transitions, coalesce(sum(crashes), 0) AS rescues,
       coalesce(sum(interruptions), 0) AS interruptions, coalesce(sum(failures), 0) AS failures
FROM job_history WHERE before IS NOT NULL
"""


async def counted(evidence: Evidence) -> dict[str, float]:
    """Counts by name, in the order in which a report shows them."""
    counts: dict[str, float] = {}
    for name, number in sorted(_struck(evidence).items()):
        counts[f"fault {name}"] = number
    outcomes = Counter(call.outcome for call in evidence.calls)
    for outcome in ("ok", "failed", "unknown"):
        counts[f"calls {outcome}"] = outcomes[outcome]
    counts["acknowledged jobs"] = len(acknowledged.jobs(evidence))
    counts["acknowledged batches"] = len(acknowledged.batches(evidence))
    for statement in (_JOBS, _MOVES):
        (row,) = await evidence.sql.fetch(statement)
        counts |= {name: int(value) for name, value in row.items()}
    counts["webhooks sent"] = await evidence.sql.fetchval(
        "SELECT count(*) FROM webhook_deliveries WHERE status = 'delivered'"
    )
    counts["webhooks pending"] = await evidence.sql.fetchval(
        "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'"
    )
    counts["webhooks received"] = len({row["webhook_id"] for row in evidence.rows("received")})
    counts["webhooks received again"] = duplicates(evidence)
    counts["stale finishes rejected"] = len(refused_results(evidence))
    return counts | await recoveries(evidence)


def _struck(evidence: Evidence) -> Counter[str]:
    """Faults with an effect, by kind and target."""
    return Counter(
        f"{row['name']} {row['target'].partition('-')[0]}"
        for row in evidence.rows("fault")
        if row["phase"] == "end" and row.get("effect", 1)
    )


def judged(findings: Iterable[Finding]) -> dict[str, float]:
    """The numbers that must be zero."""
    by_check = Counter(finding.check for finding in findings)
    return {
        "lost": by_check["lost"],
        "unexpected": by_check["unexpected"],
        "effective duplicates": by_check["one end"] + by_check["one key, one job"]
        + by_check["usage"],
        "canary hits": by_check["canaries"],
    }  # fmt: skip
