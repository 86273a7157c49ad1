"""Staged lists: made, used once and in time, forgotten; and which blobs of batches are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from coatcheck.blobs.keys import upload_key
from coatcheck.core.queries import uploads
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import StagedUpload
from coatcheck.products.batches import export_repository as exports
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches.model import export_key, list_key
from tests.db.batch_blobs import put_export, put_part

DEPLOYMENT = new_id()
LONG_AGO = -3600.0


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="test")
    yield line
    await line.close()


async def staged(
    line: Connection, *, life_seconds: float = 3600, org: str = "acme"
) -> StagedUpload:
    upload_id = new_id()
    return await uploads.create(
        line,
        org=org,
        upload_id=upload_id,
        owner="user:ann",
        blob_key=upload_key(DEPLOYMENT, upload_id),
        life_seconds=life_seconds,
    )


async def use(line: Connection, upload: StagedUpload, **other: object) -> str | None:
    named: dict[str, object] = {
        "org": upload.org,
        "upload_id": upload.uuid,
        "owner": upload.owner,
        "used_by": new_id(),
    }
    return await uploads.use(line, **(named | other))  # type: ignore[arg-type]


async def release(line: Connection, upload: StagedUpload) -> None:
    """What took it has read it."""
    await line.fetch("UPDATE uploads SET released_at = now() WHERE id = $1", upload.uuid)


async def known(line: Connection, upload: StagedUpload) -> bool:
    found = await uploads.known_uploads(line, [(upload.uuid, upload.blob_key)])
    return found == {upload.blob_key}


async def test_an_upload_that_is_made_again_after_a_lost_answer_is_the_same(
    line: Connection,
) -> None:
    upload = await staged(line)
    again = await uploads.create(
        line,
        org=upload.org,
        upload_id=upload.uuid,
        owner=upload.owner,
        blob_key=upload.blob_key,
        life_seconds=7200,
    )
    assert again == upload


async def test_an_upload_is_found_as_it_was_made(line: Connection) -> None:
    upload = await staged(line)
    assert not upload.is_expired
    assert upload.used_by is None
    assert await uploads.get(line, "acme", upload.uuid) == upload
    assert await uploads.find(line, upload.uuid) == upload
    assert await uploads.get(line, "other", upload.uuid) is None
    assert await uploads.get(line, "acme", new_id()) is None
    assert await uploads.find(line, new_id()) is None


async def test_an_upload_is_used_once_and_by_its_owner(line: Connection) -> None:
    upload = await staged(line)
    assert await use(line, upload, org="other") is None
    assert await use(line, upload, owner="user:bob") is None
    assert await use(line, upload, upload_id=new_id()) is None
    batch = new_id()
    assert await use(line, upload, used_by=batch) == upload.blob_key
    assert await use(line, upload) is None
    found = await uploads.find(line, upload.uuid)
    assert found is not None
    assert found.used_by == batch


async def test_of_many_who_use_an_upload_at_once_one_gets_it(dsn: str, line: Connection) -> None:
    upload = await staged(line)
    rivals = [Connection(dsn, name=f"rival {number}") for number in range(4)]
    got = await asyncio.gather(*(use(rival, upload) for rival in rivals))
    assert sorted(map(bool, got)) == [False, False, False, True]
    for rival in rivals:
        await rival.close()


async def test_an_upload_that_is_too_old_is_not_used(line: Connection) -> None:
    upload = await staged(line, life_seconds=0.0)
    assert await use(line, upload) is None
    found = await uploads.get(line, "acme", upload.uuid)
    assert found is not None
    assert found.is_expired


async def test_a_staged_list_is_wanted_until_its_time_is_up_or_it_was_taken_in(
    line: Connection,
) -> None:
    waiting, expired, taken = [await staged(line, life_seconds=s) for s in (3600, LONG_AGO, 3600)]
    assert await known(line, waiting)
    assert not await known(line, expired)
    assert await use(line, taken) == taken.blob_key
    assert await known(line, taken)
    await release(line, taken)
    assert not await known(line, taken)


async def test_a_list_that_is_still_to_be_read_is_wanted_although_its_upload_has_expired(
    line: Connection,
) -> None:
    upload = await staged(line)
    assert await use(line, upload) is not None
    await line.fetch("UPDATE uploads SET expires_at = now() - interval '1 day'")
    assert await known(line, upload)
    assert await uploads.prune(line, 10) == 0


async def test_uploads_are_forgotten_when_their_time_is_up(line: Connection) -> None:
    waiting = await staged(line)
    expired = [await staged(line, life_seconds=LONG_AGO) for _ in range(3)]
    used = await staged(line)
    assert await use(line, used) is not None
    await release(line, used)
    await line.fetch(
        "UPDATE uploads SET expires_at = now() - interval '1 day' WHERE id = $1", used.uuid
    )
    assert await uploads.prune(line, 2) == 2
    assert await uploads.prune(line, 10) == 2
    assert await uploads.prune(line, 10) == 0
    assert await uploads.find(line, waiting.uuid) == waiting
    for each in (*expired, used):
        assert await uploads.find(line, each.uuid) is None


async def test_an_upload_outlives_its_time_by_as_long_as_whoever_used_it_may_need_to_commit(
    line: Connection,
) -> None:
    upload = await staged(line, life_seconds=0.0)
    assert await use(line, upload) is None
    assert await known(line, upload)
    assert await uploads.prune(line, 10) == 0


async def test_another_blob_of_a_known_upload_is_not_wanted(line: Connection) -> None:
    upload = await staged(line)
    assert await uploads.known_uploads(line, [(upload.uuid, "uploads/x/y")]) == set()
    assert await uploads.known_uploads(line, [(new_id(), upload.blob_key)]) == set()


async def test_a_streamed_list_is_wanted_until_it_was_taken_in(line: Connection) -> None:
    part = new_id()
    key, rival = (list_key(DEPLOYMENT, new_id(), part) for _ in range(2))
    asked = [(part, key), (part, rival), (new_id(), key)]
    assert await ingest.known_lists(line, asked) == set()
    await put_part(line, part=part, source="pieces", source_key=key)
    for state, wanted in {"pending": {key}, "failed": {key}, "done": set()}.items():
        await line.fetch("UPDATE batch_parts SET state = $1", state)
        assert await ingest.known_lists(line, asked) == wanted


async def test_an_export_is_wanted_until_its_time_is_up(line: Connection) -> None:
    export = new_id()
    key, of_a_lost_attempt = (export_key(DEPLOYMENT, new_id(), export) for _ in range(2))
    asked: list[tuple[UUID, str]] = [(export, key), (export, of_a_lost_attempt)]
    assert await exports.known(line, asked) == set()
    await put_export(line, export, key)
    assert await exports.known(line, asked) == {key}
    await line.fetch("UPDATE batch_exports SET expires_at = now()")
    assert await exports.known(line, asked) == set()
