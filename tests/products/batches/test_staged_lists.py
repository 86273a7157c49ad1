"""Lists on each blob store: read from where they were left off, and deleted once they are in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.domain.errors import FailJob
from coatcheck.products.batches.queries import ingest
from coatcheck.products.batches.queries.task_copy import TaskBlock, encode
from tests.blobs.stores import BlobStore
from tests.products.batches.intake import ORG, Intake, new_batch

LINES = [b'{"n":%d,"pad":"%s"}' % (number, b"x" * 1_000) for number in range(3_000)]
DATA = b"\n".join(LINES)


@pytest.fixture
async def intake(dsn: str, tmp_path: Path, blob_store: BlobStore) -> AsyncIterator[Intake]:
    async with Intake(dsn, tmp_path, blob_store.url) as opened:
        yield opened


@pytest.mark.parametrize("how", ["staged", "uploaded"])
async def test_a_list_is_taken_in_from_where_it_was_left_off_and_then_deleted(
    intake: Intake, how: str
) -> None:
    new = new_batch()
    part = await (intake.uploaded(DATA) if how == "uploaded" else intake.staged(new.uuid, DATA))
    await intake.batches.create(new, part)
    order = await ingest.read_snapshot(intake.line, ORG, part.uuid)
    assert order is not None
    begun = LINES[:1_234]
    size = sum(len(line) + 1 for line in begun)
    block = TaskBlock(begun, [None] * len(begun), None, (), len(begun), size)
    await ingest.write_chunk(intake.line, order, await encode(order, 0, [block]), is_last=False)
    await intake.take_in(part)

    assert [task["payload"] for task in await intake.tasks(new.run)] == LINES
    assert await intake.staged_blobs() == []


@pytest.mark.parametrize("how", ["staged", "uploaded"])
async def test_a_list_that_is_not_there_is_missed(intake: Intake, how: str) -> None:
    new = new_batch()
    part = await (intake.uploaded(DATA) if how == "uploaded" else intake.staged(new.uuid, DATA))
    await intake.batches.create(new, part)
    await intake.blobs.delete(await intake.staged_blobs())

    with pytest.raises(FailJob) as failed:
        await intake.take_in(part)
    assert failed.value.code == "list_missing"
