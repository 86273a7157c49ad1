"""Checks that blobs and their rows match, whatever happened to the store."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from chaos.environment.installation import Installation
from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from coatcheck.maintenance.retention import OrphanBlobSweeper
from coatcheck.products.batches.maintenance import BatchSweeper


async def sweep(installed: Installation, blobs: BlobContainer) -> None:
    """Sweep orphan blobs now, whatever their age."""
    line = Connection(installed.direct, name="tests")
    try:
        await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
        await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    finally:
        await line.close()


async def every_artifact_is_whole(installed: Installation, blobs: BlobContainer) -> int:
    """Check that every row has its blob with the right bytes; returns their number."""
    rows = await installed.sql.fetch("SELECT blob_key, bytes, sha256 FROM artifacts")
    for row in rows:
        content = await blobs.get(row["blob_key"])
        assert len(content) == row["bytes"], row["blob_key"]
        assert hashlib.sha256(content).digest() == row["sha256"], row["blob_key"]
    return len(rows)


async def nothing_else_is_kept(installed: Installation, blobs: BlobContainer) -> None:
    """Check that no blob is without a row."""
    known = {row["blob_key"] for row in await installed.sql.fetch("SELECT blob_key FROM artifacts")}
    kept = {key async for page in blobs.keys_under("") for key in page}
    assert kept - known == set()
