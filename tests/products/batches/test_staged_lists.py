"""Lists on each blob store: read from where they were left off, and deleted once they are in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.domain.errors import FailJob
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches.ingest_repository import TaskBlock, encode
from tests.blobs.stores import BlobStore
from tests.products.batches.ingest_deployment import ORG, IngestDeployment, new_batch

LINES = [b'{"n":%d,"pad":"%s"}' % (number, b"x" * 1_000) for number in range(3_000)]
DATA = b"\n".join(LINES)


@pytest.fixture
async def deployment(
    dsn: str, tmp_path: Path, blob_store: BlobStore
) -> AsyncIterator[IngestDeployment]:
    async with IngestDeployment(dsn, tmp_path, blob_url=blob_store.url) as opened:
        yield opened


@pytest.mark.parametrize("how", ["staged", "uploaded"])
async def test_a_list_is_taken_in_from_where_it_was_left_off_and_then_deleted(
    deployment: IngestDeployment, how: str
) -> None:
    new = new_batch()
    part = await (
        deployment.uploaded(DATA) if how == "uploaded" else deployment.staged(new.uuid, DATA)
    )
    await deployment.batches.create(new, part)
    order = await ingest.read_snapshot(deployment.ingest_connection, ORG, part.uuid)
    assert order is not None
    begun = LINES[:1_234]
    size = sum(len(line) + 1 for line in begun)
    block = TaskBlock(begun, [None] * len(begun), None, (), len(begun), size)
    await ingest.write_chunk(
        deployment.ingest_connection, order, await encode(order, 0, [block]), is_last=False
    )
    await deployment.ingest(part)

    assert [task["payload"] for task in await deployment.tasks(new.run)] == LINES
    assert await deployment.staged_blobs() == []


@pytest.mark.parametrize("how", ["staged", "uploaded"])
async def test_a_list_that_is_not_there_is_missed(deployment: IngestDeployment, how: str) -> None:
    new = new_batch()
    part = await (
        deployment.uploaded(DATA) if how == "uploaded" else deployment.staged(new.uuid, DATA)
    )
    await deployment.batches.create(new, part)
    await deployment.blobs.delete(await deployment.staged_blobs())

    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "list_missing"
