"""B. One idempotency key, one job, in every race and however often a call is repeated."""

from __future__ import annotations

from collections import defaultdict

from chaos.checker import acknowledged
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding

CHECK = "one key, one job"


async def one_key_one_job(evidence: Evidence) -> list[Finding]:
    return [*_answers(evidence), *await _rows(evidence)]


def _answers(evidence: Evidence) -> list[Finding]:
    jobs: defaultdict[tuple[str | None, str, str, str], set[str]] = defaultdict(set)
    keys: defaultdict[str, set[tuple[str | None, str, str, str]]] = defaultdict(set)
    for call in evidence.calls:
        creates = call.operation in acknowledged.CREATING
        if call.outcome == "ok" and creates and call.key is not None and call.job is not None:
            said = (call.org, call.surface, call.operation, call.key)
            jobs[said].add(call.job)
            keys[call.job].add(said)
    return [
        _finding(f"{surface} {operation} of {org} with key {key!r} was answered with {found}")
        for (org, surface, operation, key), found in jobs.items()
        if len(found) > 1
    ] + [
        _finding(f"{job} was answered to the keys {sorted(said[3] for said in keys[job])}")
        for job in keys
        if len(keys[job]) > 1
    ]


async def _rows(evidence: Evidence) -> list[Finding]:
    """The same in the database, with the key as the product stores it."""
    found = []
    for table in ("jobs", "batches"):
        rows = await evidence.sql.fetch(
            f"""
            SELECT org_id, idempotency_key, count(*) AS jobs FROM {table}
            WHERE idempotency_key IS NOT NULL
            GROUP BY org_id, idempotency_key HAVING count(*) > 1
            """
        )
        found += [
            _finding(f"{row['jobs']} {table} of {row['org_id']} have key {row['idempotency_key']}")
            for row in rows
        ]
    return found


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "B", detail)
