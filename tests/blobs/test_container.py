"""The blob container on a real folder."""

from __future__ import annotations

import hashlib
import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key, artifacts_of, job_of
from coatcheck.domain.ids import new_id

LARGE = os.urandom(3 * 1024 * 1024 + 17)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "with a space" / "blobs"


@pytest.fixture
def blobs(folder: Path) -> BlobContainer:
    return BlobContainer.open(folder.as_uri())


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
async def test_bytes_a_path_and_a_file_come_back_as_they_went_in(
    blobs: BlobContainer, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "source"
    path.write_bytes(content)
    for number, source in enumerate([content, path, io.BytesIO(content)]):
        stored = await blobs.put(f"a/{number}", source)
        assert stored.size == len(content)
        assert stored.sha256 == hashlib.sha256(content).digest()
        assert await blobs.get(stored.key) == content
        assert b"".join([piece async for piece in blobs.stream(stored.key)]) == content


async def test_a_blob_that_is_not_there_is_a_clear_error_and_deleting_it_is_none(
    blobs: BlobContainer,
) -> None:
    with pytest.raises(FileNotFoundError):
        await blobs.get("a/missing")
    await blobs.delete(["a/missing"])


async def test_a_source_that_fails_half_way_leaves_nothing_to_read(blobs: BlobContainer) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 0:
                raise OSError("the disk is gone")
            return super().read(size)

    with pytest.raises(Exception, match="the disk is gone"):
        await blobs.put("a/broken", Broken(LARGE))
    with pytest.raises(FileNotFoundError):
        await blobs.get("a/broken")


async def test_only_blobs_under_the_prefix_and_older_than_the_limit_are_listed(
    blobs: BlobContainer,
) -> None:
    await blobs.put("mine/old", b"x")
    await blobs.put("other/old", b"x")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    long_ago = datetime.now(UTC) - timedelta(minutes=1)
    assert [key async for page in blobs.older_than(soon, "mine") for key in page] == ["mine/old"]
    assert [key async for page in blobs.older_than(long_ago, "mine") for key in page] == []


async def test_what_a_dead_upload_left_is_dropped_and_a_finished_blob_is_not(
    blobs: BlobContainer, folder: Path
) -> None:
    await blobs.put("mine/whole", b"x")
    part = folder / "mine" / "half#1"
    part.write_bytes(b"half of it")
    before = datetime.now(UTC) - timedelta(minutes=1)
    after = datetime.now(UTC) + timedelta(minutes=1)
    assert await blobs.drop_unfinished(before, "mine") == 0
    assert await blobs.drop_unfinished(after, "elsewhere") == 0
    assert await blobs.drop_unfinished(after, "mine") == 1
    assert not part.exists()
    assert await blobs.get("mine/whole") == b"x"


def test_a_key_names_its_deployment_and_its_job() -> None:
    deployment, job = new_id(), new_id()
    key = artifact_key(deployment, job)
    assert key.startswith(artifacts_of(deployment) + "/")
    assert key != artifact_key(deployment, job)
    assert job_of(key) == job
    assert job_of("_probe/x") is None
    assert job_of("artifacts/a/b/c") is None
