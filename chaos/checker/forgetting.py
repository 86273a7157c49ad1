"""Ends the retention of all data of a run, waits until maintenance has deleted it, and searches for
canaries."""

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
    "UPDATE job_expiries SET expires_at = now() WHERE expires_at > now()",
    "UPDATE batch_exports SET expires_at = now() WHERE expires_at IS NOT NULL",
    # An incomplete recording is kept for an hour, in case it still arrives.
    "UPDATE voices SET deleted_at = coalesce(deleted_at, now()),"
    " created_at = created_at - interval '2 hours'",
)

_EXPIRE_UPLOADS = "UPDATE uploads SET expires_at = now() - interval '11 minutes'"
"""A request that used an upload in time has ten more minutes to commit. Only after the batches are
deleted, which also delete their lists: an upload deleted before leaves its blob to the sweeper,
which waits until it is old enough."""

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
SELECT (SELECT count(*) FROM jobs) AS jobs, (SELECT count(*) FROM job_expiries) AS expiries,
       (SELECT count(*) FROM unsuccessful_jobs) AS unsuccessful,
       (SELECT count(*) FROM ended_tasks) AS ended_tasks,
       (SELECT count(*) FROM batches) AS batches,
       (SELECT count(*) FROM voices) AS voices, (SELECT count(*) FROM uploads) AS uploads,
       (SELECT count(*) FROM artifact_records WHERE deleted_at IS NULL) AS artifacts,
       (SELECT count(*) FROM input_copies WHERE deleted_at IS NULL AND layer = 'blob') AS inputs
"""


async def forget_and_look(
    evidence: Evidence, verdict: Verdict, *, limit_seconds: float = LIMIT_SECONDS
) -> Verdict:
    """Delete everything, and add findings about the rest. The deployment still runs."""
    verdict.invalid += await _not_to_be_found(evidence)
    verdict.findings += await deleted_is_gone(evidence)
    verdict.findings += await forget(evidence, limit_seconds)
    verdict.findings += await deleted_is_gone(evidence)
    verdict.findings += await no_canary_is_left(evidence)
    verdict.counts |= counts.judged(verdict.findings)
    return verdict


async def forget(evidence: Evidence, limit_seconds: float) -> list[Finding]:
    """Have everything deleted. Returns what is left when nothing is deleted for this long.

    The deployment deletes. The checker only sweeps at the end what crashes left: blobs without a
    row.
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
    """Blobs with a record of their deletion, which receipts show, do not exist."""
    rows = await evidence.sql.fetch(_DELETED)
    return [
        Finding(CHECK, "G", f"{path} is there, and recorded as deleted")
        for path in _blobs_of(evidence, {row["key"] for row in rows})
    ]


async def _recorded(evidence: Evidence) -> set[str]:
    """The keys, or the prefixes of pieces, of all blobs with a row."""
    return {row["key"] for row in await evidence.sql.fetch(_RECORDED)}


def _blobs_of(evidence: Evidence, keys: Collection[str]) -> list[str]:
    """The existing blobs under these keys, whole or in pieces."""
    folder = evidence.folder / "blobs"
    paths = (path.relative_to(folder) for path in files_below(folder))
    return [str(path) for path in paths if str(path) in keys or str(path.parent) in keys]


async def _not_to_be_found(evidence: Evidence) -> list[str]:
    """Why a search for canaries would prove nothing: it finds none even before the deletion."""
    if not evidence.canaries:
        return ["no canary was submitted"]
    places = await places_with(evidence)
    return [
        f"no canary is in the {kind}s before they are deleted"
        for kind, begins in (("table", "table "), ("blob", "file blobs"))
        if not any(place.startswith(begins) for place in places)
    ]


async def _delete_batches(evidence: Evidence) -> None:
    """Delete batches over HTTP, as their owners would."""
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
    """Sweep orphan blobs now, whatever their age: nothing is uploaded any more."""
    line = Connection(evidence.dsn, name="chaos sweep")
    try:
        blobs = BlobContainer.open((evidence.folder / "blobs").as_uri())
        await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
        await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    finally:
        await line.close()


def _temporary_files(evidence: Evidence) -> list[str]:
    """Files that attempts left on disk: each worker has a folder with the folders of its jobs."""
    return [str(path) for path in entries_two_below(evidence.folder / "temp")]
