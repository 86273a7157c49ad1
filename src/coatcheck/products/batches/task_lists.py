"""Receives lists of tasks from callers.

A short list without invalid lines becomes tasks while its caller waits. Any other list is stored,
in pieces (``blobs/pieces.py``) if it came in a body, and a worker ingests it (``ingest.py``): so
only the ingest counts and records invalid lines.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.blobs.pieces import delete_pieces, store_pieces
from coatcheck.core.uploads import UploadRepository
from coatcheck.crash import crash_point
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    CoatcheckError,
    InvalidBody,
    OutcomeUnknown,
)
from coatcheck.domain.ids import new_id
from coatcheck.domain.limits import LIST_BYTES_MAX, PAYLOAD_BYTES_MAX
from coatcheck.http.context import ServerContext
from coatcheck.http.parameters import Preferences
from coatcheck.http.request import LIST_SECONDS_MAX, Request
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.products.batches.lines import RateKey, as_line, parse_list
from coatcheck.products.batches.model import Created, KnownKey, NewPart, NewTask, list_key
from coatcheck.products.batches.schemas import MoreTasks, NewBatchBody

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


async def compared(request: Request, known: KnownKey, preferences: Preferences) -> Created:
    """The answer to a request whose key is known. A list is compared with the first one only if the
    caller is strict; otherwise it is not read."""
    before = known.fingerprint or b""
    is_same = before.startswith(_options(request))
    if is_same and not is_task_list(request):
        body = await request.body(PAYLOAD_BYTES_MAX)
        is_same = before.endswith(hashlib.sha256(body).digest())
    elif is_same and preferences.strict:
        digest = hashlib.sha256()
        async for piece in request.pieces(LIST_BYTES_MAX, LIST_SECONDS_MAX):
            digest.update(piece)
        is_same = before.endswith(digest.digest())
    return Created(known.uuid, False, mismatch=not is_same)


def _options(request: Request) -> bytes:
    options = sorted((name, text) for name, text in request.query.items() if name != "wait")
    return hashlib.sha256(repr((is_task_list(request), options)).encode()).digest()


MEDIA_TYPE: Final = "application/x-ndjson"
CONTENT_TYPE_HINT: Final = (
    f"a list of tasks, one on each line, comes as `Content-Type: {MEDIA_TYPE}`"
)
SCHEMA: Final = {"type": "string", "description": "One JSON value on each line."}
SMALL_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""How much of a list is read before deciding whether to store it."""


@dataclass(frozen=True, slots=True)
class ListTarget:
    """The batch that a list is for. ``prefix`` and ``suffix`` are the bytes before and after a
    task's input in its payload; ``rate_key`` is the field of its rate key."""

    batch: UUID
    owner: str
    prefix: bytes
    suffix: bytes
    rate_key: str | None
    may_be_small: bool
    """Whether the request may write the tasks of a short list itself."""


@dataclass(frozen=True, slots=True)
class ReceivedTaskList:
    """A received list: its part, and its tasks if the request writes them itself."""

    part: NewPart
    tasks: Sequence[NewTask] | None
    sha256: bytes


class TaskListReader:
    """Receives lists: parses short ones, and stores the others."""

    def __init__(self, server: ServerContext) -> None:
        self._engine = server.engine
        self._gate = server.gate
        self._small_tasks_max = server.settings.batch_small_tasks
        self._room = UploadSlots(server.settings.processes)

    async def receive(
        self, request: Request, body: NewBatchBody | MoreTasks, target: ListTarget
    ) -> ReceivedTaskList | None:
        """The tasks of a request, or where they are stored; None for a body without any.

        Raises InvalidBody for an empty list, UploadMissing and UploadAlreadyUsed for an upload,
        RateLimited if too many uploads are in progress, and QueueFull for a list that is short
        enough to be read before it is stored. A longer one is stored, and ingested as far as the
        backlog limit has room.
        """
        if is_task_list(request):
            return await self._body(request, target)
        if body.source is not None:
            return await self._staged(request, body.source.upload_id, target)
        if body.tasks is not None:
            data = b"\n".join([as_line(bytes(task)) for task in body.tasks])
            return await self._whole(request, data, target)
        return None

    async def kept(self, received: ReceivedTaskList, creating: Awaitable[Created]) -> Created:
        """Create what refers to a received list. If that fails, delete the stored list, so that
        none is left behind."""
        try:
            created = await creating
        except OutcomeUnknown:
            raise  # it may exist; if it does not, the sweeper deletes its list
        except CoatcheckError:
            await self._drop(received)
            raise
        if not created.created:
            await self._drop(received)
        return created

    async def _body(self, request: Request, target: ListTarget) -> ReceivedTaskList:
        """Receive a list that is the body of a request, as a stream."""
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
            return await self._whole(request, b"".join(begun), target)
        async with self._room.slot(request.principal.org):
            return await self._store(_chained(begun, pieces), target.batch)

    async def _staged(
        self, request: Request, upload_id: str, target: ListTarget
    ) -> ReceivedTaskList:
        found = await self._engine.extension(UploadRepository).staged(
            upload_id, org=request.principal.org, owner=target.owner
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

    async def _drop(self, received: ReceivedTaskList) -> None:
        """Delete a stored list that nothing refers to. If that fails, the sweeper will."""
        if received.part.source != "pieces" or received.part.source_key is None:
            return
        try:
            await delete_pieces(self._engine.blobs, received.part.source_key)
        except BlobStoreUnavailable:
            _log.warning("could not delete a list without a job; the sweeper will")

    async def _whole(self, request: Request, data: bytes, target: ListTarget) -> ReceivedTaskList:
        # Blank and invalid lines are counted too: only a worker finds out which they are.
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        await self._gate.check_room(request.principal, lines)
        if target.may_be_small and data.count(b"\n") < self._small_tasks_max:
            tasks = read_tasks(data, target)
            if tasks and len(tasks) < self._small_tasks_max:
                part = NewPart(new_id(), "inline", source_bytes=len(data))
                return ReceivedTaskList(part, tasks, hashlib.sha256(data).digest())

        async def once() -> AsyncIterator[bytes]:
            yield data

        return await self._store(once(), target.batch)

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


def read_tasks(data: bytes, target: ListTarget) -> list[NewTask] | None:
    """The tasks of a whole list; None if one of its lines is invalid."""
    # The limit is on the whole payload, including what is around the input.
    parsed = parse_list(data, PAYLOAD_BYTES_MAX - len(target.prefix) - len(target.suffix))
    if parsed.bad:
        return None
    key_of = None if target.rate_key is None else RateKey(target.rate_key).of
    return [
        NewTask(
            b"".join((target.prefix, given, target.suffix)),
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
