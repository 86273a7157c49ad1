"""Takes lists of tasks from callers: short ones are read at once, others are staged.

A short list without a bad line becomes tasks while its caller waits. Any other is stored, in pieces
(``blobs/pieces.py``) if it came in a body, and a worker takes it in: so bad lines are counted and
written down in one place.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.blobs.keys import list_key
from coatcheck.blobs.pieces import delete_pieces, store_pieces
from coatcheck.core import Engine
from coatcheck.core.uploads import Uploads
from coatcheck.crash import crash_point
from coatcheck.domain.errors import BlobStoreUnavailable, InvalidBody
from coatcheck.domain.ids import new_id
from coatcheck.domain.limits import LIST_BYTES_MAX, PAYLOAD_BYTES_MAX
from coatcheck.http.request import LIST_SECONDS_MAX, Call
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.products.batches.lines import as_line, parse_list
from coatcheck.products.batches.model import NewPart, NewTask
from coatcheck.products.batches.rate_keys import RateKey

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
class Taken:
    """A list that was taken: its part, and its tasks if they are to be written at once."""

    part: NewPart
    tasks: Sequence[NewTask] | None
    sha256: bytes


class Lists:
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
    ) -> Taken:
        """The tasks of a JSON body. Raises QueueFull before anything of them is stored."""
        data = b"\n".join([as_line(bytes(task)) for task in tasks])
        return await self._whole(data, batch, frame, make_room, may_be_small=may_be_small)

    async def body(
        self,
        call: Call,
        org: str,
        batch: UUID,
        frame: Frame,
        make_room: MakeRoom,
        *,
        may_be_small: bool,
    ) -> Taken:
        """The list that is the body of a request, as it comes. Raises InvalidBody for an empty one,
        RateLimited if too many are on their way in; and QueueFull if it is short enough to be read
        before it is stored: a longer one is taken in as far as there is room."""
        pieces = call.pieces(LIST_BYTES_MAX, LIST_SECONDS_MAX)
        await call.reserve_beginning(SMALL_BYTES_MAX)
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

    async def staged(self, upload_id: str, org: str, owner: str) -> Taken:
        """A list that was put to an upload. Raises UploadMissing, UploadAlreadyUsed."""
        found = await self._engine.extension(Uploads).staged(upload_id, org=org, owner=owner)
        part = NewPart(
            new_id(),
            "upload",
            source_key=found.blob_key,
            source_bytes=found.size,
            source_etag=found.etag,
            upload=found.upload,
        )
        return Taken(part, None, b"")

    async def drop(self, taken: Taken) -> None:
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
    ) -> Taken:
        # A line that is blank or bad is no task, but which are, a worker finds out.
        await make_room(data.count(b"\n") + (not data.endswith(b"\n")))
        if may_be_small and data.count(b"\n") < self._small_tasks_max:
            tasks = read_tasks(data, frame)
            if tasks and len(tasks) < self._small_tasks_max:
                digest = hashlib.sha256(data).digest()
                return Taken(NewPart(new_id(), "inline", source_bytes=len(data)), tasks, digest)

        async def once() -> AsyncIterator[bytes]:
            yield data

        return await self._store(once(), batch)

    async def _store(self, pieces: AsyncIterator[bytes], batch: UUID) -> Taken:
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
        return Taken(new, None, stored.sha256)


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
