"""A. No unexpected data: every job and batch comes from exactly one call."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from chaos.checker import acknowledged
from chaos.checker.evidence import Call, Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt, uuids_of
from coatcheck.products.batches.model import BATCHES_SERVICE
from coatcheck.products.llm.model import LLM_SERVICE
from coatcheck.products.speech.model import SPEECH_SERVICE
from coatcheck.settings.parsers import GRAPHS_SERVICE

CHECK = "unexpected"
_SURFACES = (GRAPHS_SERVICE, LLM_SERVICE, SPEECH_SERVICE)


async def unexpected(evidence: Evidence) -> list[Finding]:
    """Calls with an unknown outcome must explain all jobs that were not acknowledged: per
    organisation and product, at most one job for each such call."""
    strangers: dict[tuple[str, str], list[UUID]] = {}
    for org, surface, job in [*await _jobs(evidence), *await _batches(evidence)]:
        strangers.setdefault((org, surface), []).append(job)
    allowed = _open_calls(evidence)
    found = []
    for (org, surface), jobs in strangers.items():
        excess = len(jobs) - allowed[org, surface]
        if excess > 0:
            named = ", ".join(spelt(job) for job in jobs[:3])
            found.append(
                Finding(
                    CHECK,
                    "A",
                    f"{len(jobs)} of {surface} in {org} that no call was answered with, and "
                    f"{allowed[org, surface]} calls of unknown outcome: {named}",
                )
            )
    return found


async def _jobs(evidence: Evidence) -> list[tuple[str, str, UUID]]:
    known = uuids_of(each.job for each in acknowledged.jobs(evidence))
    rows = await evidence.sql.fetch(
        """
        SELECT org_id, endpoint, id FROM jobs
        WHERE run_id IS NULL AND split_part(endpoint, '.', 1) <> $1 AND id <> ALL ($2::uuid[])
        """,
        BATCHES_SERVICE,
        list(known),
    )
    return [(row["org_id"], surface_of(row["endpoint"]), row["id"]) for row in rows]


async def _batches(evidence: Evidence) -> list[tuple[str, str, UUID]]:
    known = uuids_of(each.job for each in acknowledged.batches(evidence))
    rows = await evidence.sql.fetch(
        "SELECT org_id, id FROM batches WHERE id <> ALL ($1::uuid[])", list(known)
    )
    return [(row["org_id"], acknowledged.BATCHES, row["id"]) for row in rows]


def surface_of(endpoint: str) -> str:
    """The product of a job with this endpoint."""
    service = endpoint.partition(".")[0]
    return service if service in _SURFACES else "gateway"


def _open_calls(evidence: Evidence) -> Counter[tuple[str, str]]:
    return Counter(
        (chain[0].org or "", chain[0].surface)
        for chain in evidence.chains
        if chain[0].operation in acknowledged.CREATING and _may_have_happened_unseen(chain)
    )


def _may_have_happened_unseen(chain: list[Call]) -> bool:
    """Never answered with an id, and not always refused."""
    if any(call.job is not None for call in chain if call.outcome == "ok"):
        return False
    return any(call.outcome in ("unknown", "ok") for call in chain)
