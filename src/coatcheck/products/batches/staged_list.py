"""A list as it was staged, read from where it was left off, in chunks of whole lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces, stream_pieces
from coatcheck.domain.errors import BlobChanged
from coatcheck.products.batches.model import IngestOrder
from coatcheck.products.batches.splitting import Block, LineSplitter

CHUNK_LINES: Final = 20_000
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""What one transaction takes in, whichever comes first."""


class ListUnusable(Exception):
    """The list is not what it was when it was handed in. ``code`` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def chunks(
    blobs: BlobContainer, order: IngestOrder, lines_max: int | None = None
) -> AsyncGenerator[Sequence[Block], None]:
    """The lines that were not taken in yet; with ``lines_max``, no more than so many in a chunk.
    Raises ListUnusable, before the chunk it concerns.

    BlobStoreUnavailable means that it may be there, and cannot be read now.
    """
    chunk: list[Block] = []
    lines = size = 0
    async for whole in _blocks(blobs, order):
        for block in (whole,) if lines_max is None else _cut(whole, lines_max):
            if lines_max is not None and chunk and lines + _lines_of(block) > lines_max:
                yield chunk
                chunk = []
                lines = size = 0
            chunk.append(block)
            lines += _lines_of(block)
            size += len(block.data)
            if lines >= CHUNK_LINES or size >= CHUNK_BYTES:
                yield chunk
                chunk = []
                lines = size = 0
    if chunk:
        yield chunk


def _cut(block: Block, lines_max: int) -> Iterator[Block]:
    """The block in pieces of at most so many lines each."""
    while _lines_of(block) > lines_max:
        end = -1
        for _ in range(lines_max):
            end = block.data.index(b"\n", end + 1)
        rest = block.data[end + 1 :]
        # What is not in the data, a mark at the very beginning, belongs to the first piece.
        yield Block(block.data[: end + 1], block.size - len(rest))
        block = Block(rest, len(rest))
    yield block


def _lines_of(block: Block) -> int:
    if block.is_too_long:
        return 1
    return block.data.count(b"\n") + (not block.data.endswith(b"\n") and bool(block.data))


async def delete(blobs: BlobContainer, order: IngestOrder) -> None:
    """Delete a list that was taken in. A repeat is a no-op."""
    if order.source_key is None:
        return
    if order.source == "pieces":
        await delete_pieces(blobs, order.source_key)
    else:
        await blobs.delete([order.source_key])


async def _blocks(blobs: BlobContainer, order: IngestOrder) -> AsyncIterator[Block]:
    splitter = LineSplitter(at_start=order.part_offset == 0)
    read = order.part_offset
    try:
        await _check_size(blobs, order)
        async for piece in _stream(blobs, order):
            read += len(piece)
            for block in splitter.feed(piece):
                yield block
    except FileNotFoundError as error:
        raise ListUnusable("list_missing", "the staged list is not there") from error
    except BlobChanged as error:
        raise _changed() from error
    if order.source_bytes is not None and read < order.source_bytes:
        raise _truncated(read, order.source_bytes)
    for block in splitter.end():
        yield block


def _stream(blobs: BlobContainer, order: IngestOrder) -> AsyncIterator[bytes]:
    key = order.source_key or ""
    if order.source == "pieces":
        return stream_pieces(blobs, key, order.source_pieces or 0, order.part_offset)
    return blobs.stream(key, order.part_offset, etag=order.source_etag)


async def _check_size(blobs: BlobContainer, order: IngestOrder) -> None:
    """Pieces are ours alone; what a caller has put somewhere may not be what it was."""
    if order.source == "pieces" or order.source_bytes is None:
        return
    found = await blobs.head(order.source_key or "")
    size = found.size
    if size < order.source_bytes:
        raise _truncated(size, order.source_bytes)
    if size > order.source_bytes or order.source_etag not in (None, found.etag):
        raise _changed()


def _truncated(size: int, was: int) -> ListUnusable:
    return ListUnusable("list_truncated", f"the staged list has {size} bytes of its {was}")


def _changed() -> ListUnusable:
    return ListUnusable("list_changed", "another list has taken the place of the staged one")
