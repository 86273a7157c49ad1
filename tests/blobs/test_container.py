"""The blob container, on each store that can run here."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces
from coatcheck.domain.errors import BlobChanged, BlobStoreUnavailable
from tests.blobs.stores import BlobStore

LARGE = os.urandom(11 * 1024 * 1024 + 17)  # more than one part of a store's own long upload


async def all_keys(container: BlobContainer, prefix: str) -> list[str]:
    return sorted([key async for page in container.keys_under(prefix) for key in page])


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
async def test_bytes_a_path_and_a_file_come_back_as_they_went_in(
    container: BlobContainer, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "source"
    path.write_bytes(content)
    for number, source in enumerate([content, path, io.BytesIO(content)]):
        stored = await container.put(f"a/{number}", source)
        assert stored.size == len(content)
        assert stored.sha256 == hashlib.sha256(content).digest()
        assert await container.get(stored.key) == content
        assert b"".join([chunk async for chunk in container.stream(stored.key)]) == content


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
async def test_what_is_put_whole_comes_back_and_replaces_what_was_there(
    container: BlobContainer, content: bytes
) -> None:
    await container.put_whole("a/b", b"what was there")
    await container.put_whole("a/b", bytearray(content))
    assert await container.get("a/b") == content
    assert await all_keys(container, "a") == ["a/b"]


async def read(
    container: BlobContainer, key: str, start: int = 0, stop: int | None = None
) -> bytes:
    return b"".join([chunk async for chunk in container.stream(key, start, stop=stop)])


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
async def test_what_comes_as_a_stream_is_stored_as_it_came(
    container: BlobContainer, content: bytes
) -> None:
    stored = await container.put("a/b", in_chunks(content, 700_001))
    assert (stored.size, stored.sha256) == (len(content), hashlib.sha256(content).digest())
    assert await container.get("a/b") == content


async def in_chunks(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.parametrize("window", [1_000_000, 5 * 1024 * 1024, 64 * 1024 * 1024])
async def test_a_blob_is_read_from_any_byte_to_any_other(
    container: BlobContainer, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr("coatcheck.blobs.container.WINDOW_BYTES", window)
    await container.put("a/b", LARGE)
    size = len(LARGE)
    for start in (0, 1, 1024 * 1024, 5_000_000, size - 1, size, size + 1):
        assert await read(container, "a/b", start) == LARGE[start:]
        for stop in (0, 1, 1024 * 1024 + 1, 6_000_001, size, size + 1):
            assert await read(container, "a/b", start, stop) == LARGE[start:stop]


async def test_an_empty_blob_is_read_from_anywhere_as_empty(container: BlobContainer) -> None:
    await container.put_whole("a/b", b"")
    for start in (0, 1, 100):
        assert await read(container, "a/b", start) == b""
    assert (await container.head("a/b")).size == 0


async def test_the_head_of_a_blob_has_its_size_and_what_tells_it_from_another(
    container: BlobContainer,
) -> None:
    await container.put_whole("a/b", b"first")
    size, etag = await container.head("a/b")
    assert size == 5
    assert etag
    assert await container.head("a/b") == (size, etag)
    await container.put_whole("a/b", b"other")
    assert (await container.head("a/b")).etag != etag


async def test_of_a_blob_that_was_replaced_not_a_byte_is_taken_for_the_one_that_was_meant(
    container: BlobContainer,
) -> None:
    await container.put_whole("a/b", b"first")
    etag = (await container.head("a/b")).etag
    assert b"".join([chunk async for chunk in container.stream("a/b", 2, etag=etag)]) == b"rst"
    await container.put_whole("a/b", b"other")
    for start in (0, 2):
        with pytest.raises(BlobChanged):
            _ = [chunk async for chunk in container.stream("a/b", start, etag=etag)]


@pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)
async def test_a_blob_that_is_replaced_while_it_is_read_is_not_read_on(
    container: BlobContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coatcheck.blobs.container.WINDOW_BYTES", 2 * 1024 * 1024)
    await container.put("a/b", LARGE)
    reading = container.stream("a/b")
    came = [await anext(reading)]
    await container.put("a/b", LARGE[::-1])

    async def read_on() -> None:
        came.extend([chunk async for chunk in reading])

    with pytest.raises(BlobChanged):
        await read_on()
    assert LARGE.startswith(b"".join(came))


async def test_a_blob_that_is_not_there_is_a_clear_error(container: BlobContainer) -> None:
    with pytest.raises(FileNotFoundError, match=r"^no such blob$"):
        await container.get("a/missing")
    with pytest.raises(FileNotFoundError):
        await container.head("a/missing")
    for start in (0, 7):
        with pytest.raises(FileNotFoundError):
            _ = [chunk async for chunk in container.stream("a/missing", start)]


async def test_what_is_not_there_does_not_keep_the_others_from_being_deleted(
    container: BlobContainer,
) -> None:
    keys = [f"a/{number}" for number in range(6)]
    for key in keys[::2]:
        await container.put_whole(key, b"x")
    await container.put_whole("a/other", b"x")
    await container.delete(keys)
    assert await all_keys(container, "a") == ["a/other"]
    await container.delete(keys)
    await container.delete([])
    assert await all_keys(container, "a") == ["a/other"]


async def test_a_source_that_fails_half_way_leaves_nothing_to_read(
    container: BlobContainer,
) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 6 * 1024 * 1024:
                raise OSError("the disk is gone")
            return super().read(size)

    with pytest.raises(OSError, match="the disk is gone"):
        await container.put("a/broken", Broken(LARGE))
    with pytest.raises(FileNotFoundError):
        await container.get("a/broken")
    assert await all_keys(container, "a") == []


async def test_a_file_to_be_stored_that_is_not_there_is_named(
    container: BlobContainer, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-source"):
        await container.put("a/b", tmp_path / "no-such-source")


async def test_only_blobs_under_the_prefix_and_older_than_the_limit_are_listed(
    container: BlobContainer,
) -> None:
    await container.put("mine/old", b"x")
    await container.put("mine-not/old", b"x")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    long_ago = datetime.now(UTC) - timedelta(minutes=1)
    assert [key async for page in container.older_than(soon, "mine") for key in page] == [
        "mine/old"
    ]
    assert [key async for page in container.older_than(long_ago, "mine") for key in page] == []
    assert await all_keys(container, "nothing") == []


async def test_a_container_sees_only_what_is_under_the_prefix_of_its_url(
    container: BlobContainer, blob_store: BlobStore
) -> None:
    inner = BlobContainer.open(f"{blob_store.url}/inner")
    await inner.put_whole("a/b", b"of the inner one")
    await container.put_whole("a/b", b"of the outer one")
    assert await inner.get("a/b") == b"of the inner one"
    assert await all_keys(container, "inner") == ["inner/a/b"]
    await inner.delete(await all_keys(inner, "a"))
    assert await container.get("a/b") == b"of the outer one"


async def test_a_probe_leaves_nothing(container: BlobContainer) -> None:
    await container.probe()
    assert await all_keys(container, "_probe") == []


@pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)
async def test_a_bucket_that_does_not_exist_is_said_to_be_unusable_without_naming_it(
    blob_store: BlobStore,
) -> None:
    elsewhere = BlobContainer.open(f"{blob_store.url.split('://')[0]}://no-such-bucket-x/p")
    with pytest.raises(BlobStoreUnavailable) as refused:
        await elsewhere.probe()
    assert "no-such-bucket" not in str(refused.value)
    with pytest.raises(BlobStoreUnavailable):
        await elsewhere.put("a", b"x")
    with pytest.raises(BlobStoreUnavailable):
        await all_keys(elsewhere, "a")


class TestAFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "blobs"

    @pytest.fixture
    def blobs(self, folder: Path) -> BlobContainer:
        return BlobContainer.open(folder.as_uri())

    async def test_is_made_for_its_owner_alone(self, blobs: BlobContainer, folder: Path) -> None:
        assert folder.stat().st_mode & 0o777 == 0o700

    async def test_keeps_no_empty_folder_of_what_was_deleted(
        self, blobs: BlobContainer, folder: Path
    ) -> None:
        await blobs.put_whole("inputs/one/two/00000", b"x")
        await blobs.put_whole("inputs/other/00000", b"x")
        await blobs.delete(["inputs/one/two/00000"])
        assert [path.name for path in (folder / "inputs").iterdir()] == ["other"]
        await blobs.delete(["inputs/other/00000"])
        assert list(folder.iterdir()) == []

    async def test_drops_what_a_dead_upload_left_and_no_finished_blob(
        self, blobs: BlobContainer, folder: Path
    ) -> None:
        await blobs.put("mine/whole", b"x")
        dead = folder / "mine" / "job" / "half#1"
        dead.parent.mkdir()
        dead.write_bytes(b"half of it")
        before = datetime.now(UTC) - timedelta(minutes=1)
        after = datetime.now(UTC) + timedelta(minutes=1)
        assert await blobs.drop_unfinished(before, "mine") == 0
        assert await blobs.drop_unfinished(after, "elsewhere") == 0
        assert await blobs.drop_unfinished(after, "mine") == 1
        assert [path.name for path in (folder / "mine").iterdir()] == ["whole"]
        assert await blobs.get("mine/whole") == b"x"

    async def test_drops_empty_folders_that_a_dead_upload_left_when_they_are_old(
        self, blobs: BlobContainer, folder: Path
    ) -> None:
        (folder / "mine" / "job").mkdir(parents=True)
        await blobs.drop_unfinished(datetime.now(UTC) - timedelta(minutes=1), "mine")
        assert (folder / "mine" / "job").is_dir()
        await blobs.drop_unfinished(datetime.now(UTC) + timedelta(minutes=1), "mine")
        assert list(folder.iterdir()) == []

    async def test_that_is_gone_does_not_pass_for_one_whose_blobs_are(
        self, blobs: BlobContainer, folder: Path
    ) -> None:
        """Else what is on a disk that was unmounted would be taken for deleted."""
        await blobs.put_whole("a/b", b"x")
        folder.rename(folder.with_name("elsewhere"))
        for question in (
            blobs.get("a/b"),
            blobs.delete(["a/b"]),
            delete_pieces(blobs, "a"),
            blobs.head("a/b"),
            anext(blobs.stream("a/b")),
            anext(blobs.stream("a/b", 1)),
            anext(blobs.keys_under("a")),
        ):
            with pytest.raises(BlobStoreUnavailable, match="does not exist"):
                await question

    async def test_that_was_removed_under_our_feet_is_made_again(
        self, blobs: BlobContainer, folder: Path
    ) -> None:
        await blobs.put_whole("a/b", b"x")
        shutil.rmtree(folder)
        await blobs.put_whole("a/b", b"y")
        assert await blobs.get("a/b") == b"y"
