"""Ends the retention of everything a run made, waits until upkeep has removed it, and looks for
what is left of the canaries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

import httpx2

from chaos.checker import counts
from chaos.checker.canaries import no_canary_is_left, places_with
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding, Verdict
from chaos.checker.ids import spelt
from chaos.files import entries_two_below, files_below
from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from coatcheck.maintenance.retention import OrphanBlobSweeper
from coatcheck.products.batches.maintenance import BatchSweeper

CHECK = "forgotten"
LIMIT_SECONDS = 120.0
_LOOK_SECONDS = 0.5
_AT_A_TIME = 8

_EXPIRE = (
    "UPDATE jobs SET expires_at = now() WHERE expires_at < 'infinity' AND expires_at > now()",
    "UPDATE batch_exports SET expires_at = now() WHERE expires_at IS NOT NULL",
    # A recording that was never whole is kept for an hour, in case it still comes.
    "UPDATE voices SET deleted_at = coalesce(deleted_at, now()),"
    " created_at = created_at - interval '2 hours'",
)

_EXPIRE_UPLOADS = "UPDATE uploads SET expires_at = now() - interval '11 minutes'"
"""Whoever used one in time has ten minutes more to commit. Only once the batches are gone, which
take along the lists that they used: an upload that is forgotten before leaves its blob to the
sweeper, for when that is old enough."""

_DELETED = """
SELECT blob_key AS key FROM artifact_records WHERE deleted_at IS NOT NULL
UNION ALL
SELECT place FROM input_copies WHERE deleted_at IS NOT NULL AND layer = 'blob'
"""

_RECORDED = """
SELECT blob_key AS key FROM artifacts
UNION ALL SELECT blob_key FROM artifact_records
UNION ALL SELECT place FROM input_copies WHERE layer = 'blob'
UNION ALL SELECT blob_key FROM batch_exports WHERE blob_key IS NOT NULL
UNION ALL SELECT source_key FROM batch_parts WHERE source_key IS NOT NULL
UNION ALL SELECT blob_key FROM uploads WHERE used_by IS NOT NULL
"""

_LEFT = """
SELECT (SELECT count(*) FROM jobs) AS jobs, (SELECT count(*) FROM batches) AS batches,
       (SELECT count(*) FROM voices) AS voices, (SELECT count(*) FROM uploads) AS uploads,
       (SELECT count(*) FROM artifact_records WHERE deleted_at IS NULL) AS artifacts,
       (SELECT count(*) FROM input_copies WHERE deleted_at IS NULL AND layer = 'blob') AS inputs
"""


async def forget_and_look(
    evidence: Evidence, verdict: Verdict, *, limit_seconds: float = LIMIT_SECONDS
) -> Verdict:
    """Add to a verdict what is found once nothing ought to be left. The deployment still runs."""
    verdict.invalid += await _not_to_be_found(evidence)
    verdict.findings += await deleted_is_gone(evidence)
    verdict.findings += await forget(evidence, limit_seconds)
    verdict.findings += await deleted_is_gone(evidence)
    verdict.findings += await no_canary_is_left(evidence)
    verdict.counts |= counts.judged(verdict.findings)
    return verdict


async def forget(evidence: Evidence, limit_seconds: float) -> list[Finding]:
    """Have everything removed. What is still there once nothing was removed for so long.

    By the deployment, not by the checker, which sweeps only in the end and only what is left of
    crashes: blobs that no row ever told of.
    """
    recorded = await _recorded(evidence)
    await _delete_batches(evidence)
    fewest, deadline = float("inf"), time.monotonic() + limit_seconds
    while True:
        for statement in _EXPIRE:
            await evidence.sql.execute(statement)
        (row,) = await evidence.sql.fetch(_LEFT)
        if not row["batches"]:
            await evidence.sql.execute(_EXPIRE_UPLOADS)
        left = {name: number for name, number in row.items() if number}
        outlived = _blobs_of(evidence, recorded)
        left |= {"temporary files": len(_temporary_files(evidence)), "blobs": len(outlived)}
        if not any(left.values()):
            await _sweep(evidence)
            return []
        if sum(left.values()) < fewest:
            fewest, deadline = sum(left.values()), time.monotonic() + limit_seconds
        if time.monotonic() > deadline:
            told = ", ".join(f"{number} {name}" for name, number in left.items() if number)
            await _sweep(evidence)
            shown = f", such as {outlived[0]}" if outlived else ""
            return [Finding(CHECK, "G", f"left when their time was up: {told}{shown}")]
        await asyncio.sleep(_LOOK_SECONDS)


async def deleted_is_gone(evidence: Evidence) -> list[Finding]:
    """What a record says was deleted, which a receipt would tell its owner, is not there."""
    rows = await evidence.sql.fetch(_DELETED)
    return [
        Finding(CHECK, "G", f"{path} is there, and recorded as deleted")
        for path in _blobs_of(evidence, {row["key"] for row in rows})
    ]


async def _recorded(evidence: Evidence) -> set[str]:
    """The keys, or what keys of pieces begin with, of all blobs that a row tells of."""
    return {row["key"] for row in await evidence.sql.fetch(_RECORDED)}


def _blobs_of(evidence: Evidence, keys: Collection[str]) -> list[str]:
    """The blobs that are there under one of these keys, whole or in pieces."""
    folder = evidence.folder / "blobs"
    paths = (path.relative_to(folder) for path in files_below(folder))
    return [str(path) for path in paths if str(path) in keys or str(path.parent) in keys]


async def _not_to_be_found(evidence: Evidence) -> list[str]:
    """Why a search for the canaries would prove nothing: it finds none before they are deleted."""
    if not evidence.canaries:
        return ["nothing was handed in that could be looked for"]
    places = await places_with(evidence)
    return [
        f"no canary is in the {kind}s before they are deleted"
        for kind, begins in (("table", "table "), ("blob", "file blobs"))
        if not any(place.startswith(begins) for place in places)
    ]


async def _delete_batches(evidence: Evidence) -> None:
    """As their owners would, over HTTP."""
    room = asyncio.Semaphore(_AT_A_TIME)
    for org in evidence.keys:
        rows = await evidence.sql.fetch(
            "SELECT id FROM batches WHERE org_id = $1 AND deleted_at IS NULL", org
        )
        async with evidence.http(org) as client:
            await asyncio.gather(*(_delete(client, row["id"], room) for row in rows))


async def _delete(client: httpx2.AsyncClient, batch: UUID, room: asyncio.Semaphore) -> None:
    async with room:
        answer = await client.delete(f"/v1/jobs/{spelt(batch)}")
        if answer.status_code not in (httpx2.codes.NOT_FOUND, httpx2.codes.GONE):
            answer.raise_for_status()


async def _sweep(evidence: Evidence) -> None:
    """What the sweeper does to orphans once they are old enough, done now: nothing is uploaded any
    more."""
    line = Connection(evidence.dsn, name="chaos sweep")
    try:
        blobs = BlobContainer.open((evidence.folder / "blobs").as_uri())
        await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
        await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    finally:
        await line.close()


def _temporary_files(evidence: Evidence) -> list[str]:
    """What attempts left on disk: each worker has a folder of its own, and in it those of jobs."""
    return [str(path) for path in entries_two_below(evidence.folder / "temp")]
