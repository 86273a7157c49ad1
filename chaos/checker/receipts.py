"""I. Receipts match the outbox: every message marked as delivered was received, and no other was.
Every requested webhook arrived. A message keeps its id, and no two messages share one."""

from __future__ import annotations

from collections import Counter, defaultdict

from chaos.checker.acknowledged import promises
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from coatcheck.domain.webhooks import message_id

CHECK = "webhook receipts"


async def receipts_cover_the_outbox(evidence: Evidence) -> list[Finding]:
    rows = await evidence.sql.fetch(
        """
        SELECT d.id, d.event, d.status, d.tries, t.pulled FROM webhook_deliveries AS d
        LEFT JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
        """
    )
    sent = {message_id(row["id"]): row for row in rows}
    taken = {row["webhook_id"] for row in evidence.rows("received") if _was_taken(row)}
    found = [
        _finding(f"{message} ({row['event']}) is marked as delivered, and nobody received it")
        for message, row in sent.items()
        if row["status"] == "delivered" and not row["pulled"] and message not in taken
    ]
    meant: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)
    for row in evidence.rows("received"):
        message = row["webhook_id"]
        if not row.get("verified", True):
            found.append(_finding(f"{message} came with a signature that does not hold"))
            continue
        if message not in sent:
            found.append(_finding(f"{message} ({row['type']}) came, and no row tells of it"))
        meant[message].add(
            (row.get("org"), row.get("path"), row["type"], row["job"], row.get("timestamp"))
        )
    found += [
        _finding(f"{message} came as {sorted(map(str, meanings))}")
        for message, meanings in meant.items()
        if len(meanings) > 1
    ]
    return found


async def requested_webhooks_arrived(evidence: Evidence) -> list[Finding]:
    """By the requests of callers, not by the outbox."""
    told = {(row.get("path"), row["job"]) for row in evidence.rows("received")}
    return [
        _finding(f"{promise.call} asked for a webhook to {path}, and none came for {promise.job}")
        for promise in promises(evidence)
        for path in promise.call.invoked.get("webhooks", ())
        if (path, promise.job) not in told
    ]


def duplicates(evidence: Evidence) -> int:
    """How many webhooks arrived again with the same id."""
    came = Counter(row["webhook_id"] for row in evidence.rows("received"))
    return sum(times - 1 for times in came.values())


def _was_taken(row: dict[str, object]) -> bool:
    status = row.get("answered", 204)
    return isinstance(status, int) and 200 <= status < 300


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "I", detail)
