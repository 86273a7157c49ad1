"""Receives lists of tasks from callers, and reads stored ones for the ingest.

A short list without invalid lines becomes tasks while its caller waits. Any other list is stored,
in pieces (``blobs/pieces.py``) if it came in a body, and a worker ingests it: so only the ingest
counts and records invalid lines.
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
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.products.batches.lines import Block, LineSplitter, RateKey, as_line, parse_list
from coatcheck.products.batches.model import (
    BatchFailure,
    IngestSnapshot,
    KnownKey,
    NewPart,
    NewTask,
    list_key,
)

_log = logging.getLogger(__name__)


def is_task_list(request: Request) -> bool:
    """Whether the body of a request is the list itself."""
    given = request.header(b"content-type") or ""
    return given.partition(";")[0].strip().lower() == MEDIA_TYPE


async def fingerprint(request: Request, received: ReceivedTaskList | None) -> bytes:
    """A hash of the request, to tell a repeat of it from another use of its idempotency key.

    ``received`` is the list, if the body is one: it has been read by then.
    """
    if is_task_list(request):
        assert received is not None, "its body was a list"
        return _options(request) + received.sha256
    body = await request.body(PAYLOAD_BYTES_MAX)
    return _options(request) + hashlib.sha256(body).digest()


async def with_key(
    request: Request, received: ReceivedTaskList, key: str | None
) -> ReceivedTaskList:
    """The received list with the idempotency key of its request."""
    if key is None:
        return received
    part = replace(
        received.part, idempotency_key=key, fingerprint=await fingerprint(request, received)
    )
    return replace(received, part=part)


async def is_same(
    request: Request, known: KnownKey, preferences: Preferences, *, is_list: bool
) -> bool:
    """Whether a request equals the first one with its key. A list is compared only if the caller
    is strict; otherwise it is not read."""
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
    """Headers for a request whose idempotency key was known. Raises IdempotencyMismatch."""
    if same:
        return [(b"idempotent-replayed", b"true")]
    if preferences.strict:
        raise IdempotencyMismatch("The idempotency key was used before with another payload.")
    return [(b"idempotent-replayed", b"true"), (b"idempotency-mismatch", b"true")]


def _options(request: Request) -> bytes:
    options = sorted((name, text) for name, text in request.query.items() if name != "wait")
    return hashlib.sha256(repr((is_task_list(request), options)).encode()).digest()


CHUNK_LINES: Final = 20_000
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""What one transaction writes at most, whichever is reached first."""


class ListUnusable(Exception):
    """A list cannot be ingested: it is missing or changed, or has no task. ``code`` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def chunks(
    blobs: BlobContainer, snapshot: IngestSnapshot, lines_max: int | None = None
) -> AsyncGenerator[Sequence[Block], None]:
    """The lines that were not ingested yet, in chunks of at most ``lines_max`` lines.

    Raises ListUnusable in place of the chunk that is affected. BlobStoreUnavailable means that the
    list may exist, but cannot be read now.
    """
    chunk: list[Block] = []
    lines = size = 0
    async for whole in _blocks(blobs, snapshot):
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
    """Split a block into blocks of at most ``lines_max`` lines."""
    while _lines_of(block) > lines_max:
        end = -1
        for _ in range(lines_max):
            end = block.data.index(b"\n", end + 1)
        rest = block.data[end + 1 :]
        # A byte order mark counts in the size and is not in the data: it belongs to the first one.
        yield Block(block.data[: end + 1], block.size - len(rest))
        block = Block(rest, len(rest))
    yield block


def _lines_of(block: Block) -> int:
    if block.is_too_long:
        return 1
    return block.data.count(b"\n") + (not block.data.endswith(b"\n") and bool(block.data))


async def delete(blobs: BlobContainer, snapshot: IngestSnapshot) -> None:
    """Delete an ingested list. A repeat is a no-op."""
    if snapshot.source_key is None:
        return
    if snapshot.source == "pieces":
        await delete_pieces(blobs, snapshot.source_key)
    else:
        await blobs.delete([snapshot.source_key])


async def _blocks(blobs: BlobContainer, snapshot: IngestSnapshot) -> AsyncIterator[Block]:
    splitter = LineSplitter(at_start=snapshot.part_offset == 0)
    read = snapshot.part_offset
    try:
        await _check_size(blobs, snapshot)
        async for piece in _stream(blobs, snapshot):
            read += len(piece)
            for block in splitter.feed(piece):
                yield block
    except FileNotFoundError as error:
        raise ListUnusable(BatchFailure.LIST_MISSING, "the uploaded list is missing") from error
    except BlobChanged as error:
        raise _changed() from error
    if snapshot.source_bytes is not None and read < snapshot.source_bytes:
        raise _truncated(read, snapshot.source_bytes)
    for block in splitter.end():
        yield block


def _stream(blobs: BlobContainer, snapshot: IngestSnapshot) -> AsyncIterator[bytes]:
    key = snapshot.source_key or ""
    if snapshot.source == "pieces":
        return stream_pieces(blobs, key, snapshot.source_pieces or 0, snapshot.part_offset)
    return blobs.stream(key, snapshot.part_offset, etag=snapshot.source_etag)


async def _check_size(blobs: BlobContainer, snapshot: IngestSnapshot) -> None:
    """Raise ListUnusable if an upload changed. Only the server writes pieces: they cannot."""
    if snapshot.source == "pieces" or snapshot.source_bytes is None:
        return
    found = await blobs.head(snapshot.source_key or "")
    size = found.size
    if size < snapshot.source_bytes:
        raise _truncated(size, snapshot.source_bytes)
    if size > snapshot.source_bytes or snapshot.source_etag not in (None, found.etag):
        raise _changed()


def _truncated(size: int, was: int) -> ListUnusable:
    return ListUnusable(
        BatchFailure.LIST_TRUNCATED, f"the uploaded list has only {size} of its {was} bytes"
    )


def _changed() -> ListUnusable:
    return ListUnusable(BatchFailure.LIST_CHANGED, "the uploaded list was replaced by another one")


MEDIA_TYPE: Final = "application/x-ndjson"
CONTENT_TYPE_HINT: Final = (
    f"a list of tasks, one on each line, comes as `Content-Type: {MEDIA_TYPE}`"
)
SCHEMA: Final = {"type": "string", "description": "One JSON value on each line."}
SMALL_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""How much of a list is read before deciding whether to store it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The bytes before and after a task's input in its payload, and the field of its rate key."""

    prefix: bytes
    suffix: bytes
    rate_key: str | None


CheckRoom = Callable[[int], Awaitable[None]]
"""Checks a number of tasks against the organisation's backlog limit. Raises QueueFull."""


@dataclass(frozen=True, slots=True)
class ReceivedTaskList:
    """A received list: its part, and its tasks if the request writes them itself."""

    part: NewPart
    tasks: Sequence[NewTask] | None
    sha256: bytes


class TaskListReader:
    """Receives lists: parses short ones, and stores the others."""

    def __init__(self, engine: Engine, small_tasks_max: int) -> None:
        self._engine = engine
        self._small_tasks_max = small_tasks_max
        self._room = UploadSlots()

    async def inline(
        self,
        tasks: Sequence[msgspec.Raw],
        batch: UUID,
        frame: Frame,
        check_room: CheckRoom,
        *,
        may_be_small: bool,
    ) -> ReceivedTaskList:
        """Receive the tasks of a JSON body. Raises QueueFull before anything is stored."""
        data = b"\n".join([as_line(bytes(task)) for task in tasks])
        return await self._whole(data, batch, frame, check_room, may_be_small=may_be_small)

    async def body(
        self,
        request: Request,
        org: str,
        batch: UUID,
        frame: Frame,
        check_room: CheckRoom,
        *,
        may_be_small: bool,
    ) -> ReceivedTaskList:
        """Receive a list that is the body of a request, as a stream.

        Raises InvalidBody for an empty list, RateLimited if too many uploads are in progress, and
        QueueFull for a list that is short enough to be read before it is stored. A longer one is
        stored, and ingested as far as the backlog limit has room.
        """
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
                raise InvalidBody("The body must be a list of tasks, one per line; it is empty.")
            return await self._whole(
                b"".join(begun), batch, frame, check_room, may_be_small=may_be_small
            )
        async with self._room.slot(org):
            return await self._store(_chained(begun, pieces), batch)

    async def staged(self, upload_id: str, org: str, owner: str) -> ReceivedTaskList:
        """Receive an uploaded list. Raises UploadMissing, UploadAlreadyUsed."""
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
        return ReceivedTaskList(part, None, b"")

    async def drop(self, received: ReceivedTaskList) -> None:
        """Delete a stored list that nothing refers to. If that fails, the sweeper will."""
        if received.part.source != "pieces" or received.part.source_key is None:
            return
        try:
            await delete_pieces(self._engine.blobs, received.part.source_key)
        except BlobStoreUnavailable:
            _log.warning("could not delete a list without a job; the sweeper will")

    async def _whole(
        self,
        data: bytes,
        batch: UUID,
        frame: Frame,
        check_room: CheckRoom,
        *,
        may_be_small: bool,
    ) -> ReceivedTaskList:
        # Blank and invalid lines are counted too: only a worker finds out which they are.
        await check_room(data.count(b"\n") + (not data.endswith(b"\n")))
        if may_be_small and data.count(b"\n") < self._small_tasks_max:
            tasks = read_tasks(data, frame)
            if tasks and len(tasks) < self._small_tasks_max:
                digest = hashlib.sha256(data).digest()
                return ReceivedTaskList(
                    NewPart(new_id(), "inline", source_bytes=len(data)), tasks, digest
                )

        async def once() -> AsyncIterator[bytes]:
            yield data

        return await self._store(once(), batch)

    async def _store(self, pieces: AsyncIterator[bytes], batch: UUID) -> ReceivedTaskList:
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
        return ReceivedTaskList(new, None, stored.sha256)


def read_tasks(data: bytes, frame: Frame) -> list[NewTask] | None:
    """The tasks of a whole list; None if one of its lines is invalid."""
    # The limit is on the whole payload, including what is around the input.
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
