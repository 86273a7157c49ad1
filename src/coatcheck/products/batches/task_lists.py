"""Takes lists of tasks from callers: short ones are read at once, others are staged.

A short list without a bad line becomes tasks while its caller waits. Any other is stored, in pieces
(``blobs/pieces.py``) if it came in a body, and a worker takes it in: so bad lines are counted and
written down in one place.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import list_key
from coatcheck.blobs.pieces import delete_pieces, store_pieces, stream_pieces
from coatcheck.core import Engine
from coatcheck.core.uploads import UploadRepository
from coatcheck.crash import crash_point
from coatcheck.domain.errors import (
    BlobChanged,
    BlobStoreUnavailable,
    IdempotencyMismatch,
    InvalidBody,
)
from coatcheck.domain.ids import new_id
from coatcheck.domain.limits import LIST_BYTES_MAX, PAYLOAD_BYTES_MAX
from coatcheck.http.parameters import Preferences
from coatcheck.http.request import LIST_SECONDS_MAX, Request
from coatcheck.http.response import RawHeaders
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.products.batches.lines import Block, LineSplitter, RateKey, as_line, parse_list
from coatcheck.products.batches.model import IngestOrder, Known, NewPart, NewTask


def comes_as_list(request: Request) -> bool:
    """Whether the body is the list itself."""
    given = request.header(b"content-type") or ""
    return given.partition(";")[0].strip().lower() == MEDIA_TYPE


async def fingerprint(request: Request, taken: TaskListTaken | None) -> bytes:
    """Of a request whose list, if its body is one, was taken."""
    if comes_as_list(request):
        assert taken is not None, "its body was a list"
        return _options(request) + taken.sha256
    body = await request.body(PAYLOAD_BYTES_MAX)
    return _options(request) + hashlib.sha256(body).digest()


async def marked(request: Request, taken: TaskListTaken, key: str | None) -> TaskListTaken:
    """What was taken, with the key that it came with."""
    if key is None:
        return taken
    part = replace(taken.part, idempotency_key=key, fingerprint=await fingerprint(request, taken))
    return replace(taken, part=part)


async def is_same(
    request: Request, known: Known, preferences: Preferences, *, is_list: bool
) -> bool:
    """Whether a request is the one that its key first came with, as far as it is read."""
    before = known.fingerprint or b""
    if not before.startswith(_options(request)):
        return False
    if not is_list:
        body = await request.body(PAYLOAD_BYTES_MAX)
        return before.endswith(hashlib.sha256(body).digest())
    if not preferences.strict:
        return True
    digest = hashlib.sha256()
    async for piece in request.pieces(LIST_BYTES_MAX, LIST_SECONDS_MAX):
        digest.update(piece)
    return before.endswith(digest.digest())


def replayed(*, same: bool, preferences: Preferences) -> RawHeaders:
    """What tells a caller that the idempotency key was known. Raises IdempotencyMismatch."""
    if same:
        return [(b"idempotent-replayed", b"true")]
    if preferences.strict:
        raise IdempotencyMismatch(
            "The idempotency key is known, and came with another payload then."
        )
    return [(b"idempotent-replayed", b"true"), (b"idempotency-mismatch", b"true")]


def _options(request: Request) -> bytes:
    said = sorted((name, text) for name, text in request.query.items() if name != "wait")
    return hashlib.sha256(repr((comes_as_list(request), said)).encode()).digest()


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


_log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/x-ndjson"
OTHERWISE: Final = f"a list of tasks, one on each line, comes as `Content-Type: {MEDIA_TYPE}`"
SCHEMA: Final = {"type": "string", "description": "One JSON value on each line."}
SMALL_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""What is read before it is decided what to do with a list."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What makes a payload of a task's input, and what its rate is counted by."""

    prefix: bytes
    suffix: bytes
    rate_key: str | None


MakeRoom = Callable[[int], Awaitable[None]]
"""Counts so many tasks against the organisation's backlog limit. Raises QueueFull."""


@dataclass(frozen=True, slots=True)
class TaskListTaken:
    """A list that was taken: its part, and its tasks if they are to be written at once."""

    part: NewPart
    tasks: Sequence[NewTask] | None
    sha256: bytes


class TaskListReader:
    """Takes lists."""

    def __init__(self, engine: Engine, small_tasks_max: int) -> None:
        self._engine = engine
        self._small_tasks_max = small_tasks_max
        self._room = UploadRoom()

    async def inline(
        self,
        tasks: Sequence[msgspec.Raw],
        batch: UUID,
        frame: Frame,
        make_room: MakeRoom,
        *,
        may_be_small: bool,
    ) -> TaskListTaken:
        """The tasks of a JSON body. Raises QueueFull before anything of them is stored."""
        data = b"\n".join([as_line(bytes(task)) for task in tasks])
        return await self._whole(data, batch, frame, make_room, may_be_small=may_be_small)

    async def body(
        self,
        request: Request,
        org: str,
        batch: UUID,
        frame: Frame,
        make_room: MakeRoom,
        *,
        may_be_small: bool,
    ) -> TaskListTaken:
        """The list that is the body of a request, as it comes. Raises InvalidBody for an empty one,
        RateLimited if too many are on their way in; and QueueFull if it is short enough to be read
        before it is stored: a longer one is taken in as far as there is room."""
        pieces = request.pieces(LIST_BYTES_MAX, LIST_SECONDS_MAX)
        await request.reserve_beginning(SMALL_BYTES_MAX)
        begun: list[bytes] = []
        size = 0
        async for piece in pieces:
            begun.append(piece)
            size += len(piece)
            if size > SMALL_BYTES_MAX:
                break
        else:
            if not size:
                raise InvalidBody("The body is a list of tasks, one on a line, and it is empty.")
            return await self._whole(
                b"".join(begun), batch, frame, make_room, may_be_small=may_be_small
            )
        async with self._room.entered(org):
            return await self._store(_chained(begun, pieces), batch)

    async def staged(self, upload_id: str, org: str, owner: str) -> TaskListTaken:
        """A list that was put to an upload. Raises UploadMissing, UploadAlreadyUsed."""
        found = await self._engine.extension(UploadRepository).staged(
            upload_id, org=org, owner=owner
        )
        part = NewPart(
            new_id(),
            "upload",
            source_key=found.blob_key,
            source_bytes=found.size,
            source_etag=found.etag,
            upload=found.upload,
        )
        return TaskListTaken(part, None, b"")

    async def drop(self, taken: TaskListTaken) -> None:
        """Delete a list that nothing refers to. If that fails, the sweeper will."""
        if taken.part.source != "pieces" or taken.part.source_key is None:
            return
        try:
            await delete_pieces(self._engine.blobs, taken.part.source_key)
        except BlobStoreUnavailable:
            _log.warning("a list without a job is left to the sweeper")

    async def _whole(
        self,
        data: bytes,
        batch: UUID,
        frame: Frame,
        make_room: MakeRoom,
        *,
        may_be_small: bool,
    ) -> TaskListTaken:
        # A line that is blank or bad is no task, but which are, a worker finds out.
        await make_room(data.count(b"\n") + (not data.endswith(b"\n")))
        if may_be_small and data.count(b"\n") < self._small_tasks_max:
            tasks = read_tasks(data, frame)
            if tasks and len(tasks) < self._small_tasks_max:
                digest = hashlib.sha256(data).digest()
                return TaskListTaken(
                    NewPart(new_id(), "inline", source_bytes=len(data)), tasks, digest
                )

        async def once() -> AsyncIterator[bytes]:
            yield data

        return await self._store(once(), batch)

    async def _store(self, pieces: AsyncIterator[bytes], batch: UUID) -> TaskListTaken:
        part = new_id()
        key = list_key(await self._engine.deployment(), batch, part)
        stored = await store_pieces(self._engine.blobs, key, pieces)
        crash_point("submit.blob_stored")
        new = NewPart(
            part,
            "pieces",
            source_key=stored.key,
            source_pieces=stored.pieces,
            source_bytes=stored.size,
        )
        return TaskListTaken(new, None, stored.sha256)


def read_tasks(data: bytes, frame: Frame) -> list[NewTask] | None:
    """The tasks of a whole list; None if one of its lines is bad."""
    # A payload is bounded with all that is put around its input.
    parsed = parse_list(data, PAYLOAD_BYTES_MAX - len(frame.prefix) - len(frame.suffix))
    if parsed.bad:
        return None
    key_of = None if frame.rate_key is None else RateKey(frame.rate_key).of
    return [
        NewTask(
            b"".join((frame.prefix, given, frame.suffix)),
            custom_id,
            "" if key_of is None else key_of(given),
        )
        for given, custom_id in zip(parsed.inputs, parsed.custom_ids, strict=True)
    ]


async def _chained(begun: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"".join(begun)
    begun.clear()
    async for piece in rest:
        crash_point("submit.uploading")
        yield piece
