"""Streams stored in pieces, on each store that can run here."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces, store_pieces, stream_pieces
from coatcheck.domain.errors import BlobStoreUnavailable

KEY = "inputs/deployment/job/upload"
PIECE = 1000


async def in_chunks(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def all_keys(container: BlobContainer, prefix: str = "inputs") -> list[str]:
    return sorted([key async for page in container.keys_under(prefix) for key in page])


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
@pytest.mark.parametrize("chunk", [7, PIECE, 10 * PIECE])
async def test_any_stream_comes_back_as_it_was_cut_into_pieces(
    container: BlobContainer, length: int, chunk: int
) -> None:
    content = os.urandom(length)
    stored = await store_pieces(container, KEY, in_chunks(content, chunk), piece_bytes=PIECE)
    assert stored.key == KEY
    assert stored.size == length
    assert stored.sha256 == hashlib.sha256(content).digest()
    assert stored.pieces == -(-length // PIECE)
    assert await all_keys(container) == [f"{KEY}/{n:05}" for n in range(stored.pieces)]
    assert b"".join([c async for c in stream_pieces(container, KEY, stored.pieces)]) == content


async def test_a_piece_is_streamed_in_chunks_of_at_most_a_mebibyte(
    container: BlobContainer,
) -> None:
    content = os.urandom(20 * 1024 * 1024 + 5)
    stored = await store_pieces(container, KEY, in_chunks(content, 65536))
    assert stored.pieces == 3
    chunks = [chunk async for chunk in stream_pieces(container, KEY, stored.pieces)]
    assert max(map(len, chunks)) <= 1024 * 1024
    assert b"".join(chunks) == content


@pytest.mark.parametrize("length", [0, 1, PIECE, 3 * PIECE, 3 * PIECE + 1])
async def test_a_stream_may_begin_at_any_byte_and_reads_no_piece_before_it(
    container: BlobContainer, length: int
) -> None:
    content = os.urandom(length)
    stored = await store_pieces(container, KEY, in_chunks(content, 333), piece_bytes=PIECE)
    for start in (2 * PIECE, 2 * PIECE + 1, 3 * PIECE, 3 * PIECE + 1, 4 * PIECE):
        for number in range(start // PIECE):
            await container.delete([f"{KEY}/{number:05}"])
        chunks = stream_pieces(container, KEY, stored.pieces, start, piece_bytes=PIECE)
        assert b"".join([chunk async for chunk in chunks]) == content[start:]


async def test_a_stream_with_a_piece_gone_is_not_found(container: BlobContainer) -> None:
    stored = await store_pieces(
        container, KEY, in_chunks(b"x" * 3 * PIECE, PIECE), piece_bytes=PIECE
    )
    await container.delete([f"{KEY}/00001"])
    with pytest.raises(FileNotFoundError):
        _ = [chunk async for chunk in stream_pieces(container, KEY, stored.pieces)]


async def test_deleting_takes_all_pieces_of_the_key_and_no_others(container: BlobContainer) -> None:
    await store_pieces(container, KEY, in_chunks(b"x" * 3 * PIECE, PIECE), piece_bytes=PIECE)
    await store_pieces(container, f"{KEY}2", in_chunks(b"x", 1))
    await delete_pieces(container, KEY)
    assert await all_keys(container) == [f"{KEY}2/00000"]
    await delete_pieces(container, KEY)
    assert await all_keys(container) == [f"{KEY}2/00000"]


async def test_a_source_that_fails_leaves_no_piece(container: BlobContainer) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * 2 * PIECE
        raise ConnectionResetError("the client left")

    with pytest.raises(ConnectionResetError, match="the client left"):
        await store_pieces(container, KEY, failing(), piece_bytes=PIECE)
    assert await all_keys(container) == []


async def test_an_upload_that_is_cancelled_leaves_no_piece(container: BlobContainer) -> None:
    waiting = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b"x" * 2 * PIECE
        waiting.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(store_pieces(container, KEY, stalling(), piece_bytes=PIECE))
    await waiting.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert await all_keys(container) == []


async def test_a_piece_on_its_way_when_the_upload_is_cancelled_does_not_land_later(
    container: BlobContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, may_send = asyncio.Event(), asyncio.Event()
    put_whole = container.put_whole

    async def slowly(key: str, content: bytes | bytearray) -> None:
        sending.set()
        await may_send.wait()
        await put_whole(key, content)

    monkeypatch.setattr(container, "put_whole", slowly)
    upload = asyncio.create_task(
        store_pieces(container, KEY, in_chunks(b"x" * 3 * PIECE, PIECE), piece_bytes=PIECE)
    )
    await sending.wait()
    upload.cancel()
    may_send.set()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert await all_keys(container) == []


async def test_only_one_piece_is_gathered_while_one_is_sent(
    container: BlobContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, may_send = asyncio.Event(), asyncio.Event()
    put_whole = container.put_whole
    asked = 0

    async def slowly(key: str, content: bytes | bytearray) -> None:
        sending.set()
        await may_send.wait()
        await put_whole(key, content)

    async def counted() -> AsyncIterator[bytes]:
        nonlocal asked
        for _ in range(50):
            asked += 1
            yield b"x" * (PIECE // 10)

    monkeypatch.setattr(container, "put_whole", slowly)
    upload = asyncio.create_task(store_pieces(container, KEY, counted(), piece_bytes=PIECE))
    await sending.wait()
    for _ in range(200):  # turns of the loop: more than the source has chunks
        await asyncio.sleep(0)
    assert asked == 20  # two pieces' worth: one on its way, one gathered
    may_send.set()
    assert (await upload).pieces == 5


async def test_a_store_that_fails_is_the_error_and_what_was_stored_is_deleted(
    tmp_path: Path,
) -> None:
    container = BlobContainer.open(tmp_path.as_uri())
    # A file where the folder of the key should be, made after the first piece was stored there.
    elsewhere = f"{KEY}/00001"
    (tmp_path / elsewhere).mkdir(parents=True)
    with pytest.raises(BlobStoreUnavailable):
        await store_pieces(container, KEY, in_chunks(b"x" * 3 * PIECE, PIECE), piece_bytes=PIECE)
    assert await all_keys(container) == []


async def test_deleting_also_takes_the_half_of_a_piece_that_a_killed_process_left(
    tmp_path: Path,
) -> None:
    container = BlobContainer.open(tmp_path.as_uri())
    await store_pieces(container, KEY, in_chunks(b"x" * PIECE, PIECE), piece_bytes=PIECE)
    (tmp_path / KEY / "00001#1").write_bytes(b"half of it")
    await delete_pieces(container, KEY)
    assert list(tmp_path.iterdir()) == []
