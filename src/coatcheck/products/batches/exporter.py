"""Writes exports: the ended tasks of a run, or of a batch as a whole, streamed from the database
into a zip in the blob store.

Memory is bounded, whatever the run has: a chunk of rows is packed, in a thread, while the next one
is being read, and what is packed goes on at once. Nothing is visible before all of it is there, and
only then is the export said to be completed. An attempt that dies leaves at most a blob under a key
of its own, which no row knows and the sweeper deletes.

Of a batch as a whole, runs are read the newest first. So a task that a run takes in again meanwhile
is left out, like any that has not ended, and never written twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import IO, Any, Final, cast
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import export_key
from coatcheck.core.queries import reports
from coatcheck.core.upstream_calls import shown_result
from coatcheck.crash import crash_point
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import BlobStoreUnavailable, FailJob, RetryLater
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.job import Job
from coatcheck.products.batches.model import MirrorRun, TaskStatus, mirrored_after
from coatcheck.products.batches.queries import exports, tasks
from coatcheck.products.batches.queries.exports import ExportOrder, ExportRun, ListedLine
from coatcheck.products.batches.queries.tasks import RunPlace
from coatcheck.settings import Settings
from coatcheck.worker.reports import JobReporter

_LEVEL: Final = 1
"""Lines of JSON shrink well by the fastest level; the best takes many times as long."""
_YEAR_MIN: Final = 1980  # a zip knows no earlier one


class _Spout:
    """What a zip is written to: gathers bytes until somebody takes them. It cannot seek."""

    def __init__(self) -> None:
        self._gathered: list[bytes] = []
        self.size = 0

    def write(self, block: bytes) -> int:
        self._gathered.append(block)
        self.size += len(block)
        return len(block)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken = b"".join(self._gathered)
        self._gathered, self.size = [], 0
        return taken


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the zip, as it was before it was packed."""

    name: str
    lines: int
    size: int
    sha256: str


class ZipStream:
    """Members are written one after the other: ``begin``, ``write`` as often as need be, ``end``.

    Between any two calls, ``take`` gives what is to go on.
    """

    def __init__(self, written_at: datetime) -> None:
        self._spout = _Spout()
        self._zip = zipfile.ZipFile(
            cast(IO[bytes], self._spout), "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL
        )
        year, month, day, hour, minute, second, *_ = written_at.timetuple()
        self._date = (max(year, _YEAR_MIN), month, day, hour, minute, second)
        self._file: IO[bytes] | None = None
        self._name = ""
        self._lines = 0
        self._size = 0
        self._digest = hashlib.sha256()

    def begin(self, name: str) -> None:
        """Begin a member."""
        info = zipfile.ZipInfo(name, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        self._file = self._zip.open(info, "w", force_zip64=True)
        self._name, self._lines, self._size, self._digest = name, 0, 0, hashlib.sha256()

    def write(self, block: bytes, lines: int) -> None:
        """Add a block, which has so many lines, to the member."""
        assert self._file is not None, "a member was begun"
        self._file.write(block)
        self._digest.update(block)
        self._lines += lines
        self._size += len(block)

    def end(self) -> Member:
        """End the member. What it came to."""
        assert self._file is not None, "a member was begun"
        self._file.close()
        self._file = None
        return Member(self._name, self._lines, self._size, self._digest.hexdigest())

    def close(self) -> None:
        """Write what ends a zip. Of one that is given up half-way, nothing is to be used."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._zip.close()

    @property
    def waiting(self) -> int:
        """How many bytes are to be taken."""
        return self._spout.size

    def take(self) -> bytes:
        """What was written since the last time."""
        return self._spout.take()


Show = Callable[[bytes], bytes]
"""What a caller is shown of a result."""


def file_name(batch: UUID, run: UUID | None) -> str:
    """What an export is called when it is downloaded: of a run, or of the batch as a whole."""
    return f"{to_text(batch)}.zip" if run is None else f"{to_text(batch)}-{to_text(run)}.zip"


def as_it_is(result: bytes) -> bytes:
    return result


def result_lines(rows: Sequence[Any], show: Show = as_it_is) -> bytes:
    """Tasks that succeeded: rows of ``batch_exports.ended``."""
    lines: list[bytes] = []
    shown_at: dict[datetime, bytes] = {}
    run_ids: dict[UUID, bytes] = {}
    for (
        uuid,
        index,
        custom_id,
        attempts,
        finished_at,
        result,
        _,
        _,
        artifacts,
        position,
        run,
    ) in rows:
        if run not in run_ids:
            run_ids[run] = to_text(run).encode()
        moment = shown_at.get(finished_at)
        if moment is None:
            moment = shown_at[finished_at] = encode(finished_at)
        value = b"null" if result is None else _on_one_line(show(result))
        lines.append(
            b'{"id":"%b","run_id":"%b","index":%d,"job_index":%d,"custom_id":%b,"status":"succeeded",'
            b'"result":%b,'
            b'"attempts":%d,"finished_at":%b%b}\n'
            % (
                uuid.hex.encode(),
                run_ids[run],
                index,
                position,
                b"null" if custom_id is None else encode(custom_id),
                value,
                attempts,
                moment,
                b"" if artifacts is None else b',"artifacts":' + _on_one_line(artifacts.encode()),
            )
        )
    return b"".join(lines)


def error_lines(rows: Sequence[Any], status: TaskStatus) -> bytes:
    """Tasks that failed or were cancelled: rows of ``batch_exports.ended``."""
    name = encode(status)
    lines: list[bytes] = []
    shown_at: dict[datetime, bytes] = {}
    run_ids: dict[UUID, bytes] = {}
    for (
        uuid,
        index,
        custom_id,
        attempts,
        finished_at,
        _,
        code,
        message,
        artifacts,
        position,
        run,
    ) in rows:
        if run not in run_ids:
            run_ids[run] = to_text(run).encode()
        moment = shown_at.get(finished_at)
        if moment is None:
            moment = shown_at[finished_at] = encode(finished_at)
        lines.append(
            b'{"id":"%b","run_id":"%b","index":%d,"job_index":%d,"custom_id":%b,"status":%b,'
            b'"error":{"code":%b,"message":%b},"attempts":%d,"finished_at":%b%b}\n'
            % (
                uuid.hex.encode(),
                run_ids[run],
                index,
                position,
                b"null" if custom_id is None else encode(custom_id),
                name,
                encode(code),
                encode(message),
                attempts,
                moment,
                b"" if artifacts is None else b',"artifacts":' + _on_one_line(artifacts.encode()),
            )
        )
    return b"".join(lines)


def bad_line_lines(rows: Sequence[ListedLine], run: UUID) -> bytes:
    """Invalid lines. ``part`` counts the lists of the run from 1."""
    run_id = to_text(run).encode()
    return b"".join(
        b'{"run_id":"%b","part":%d,"line":%d,"error":{"code":%b,"message":%b}}\n'
        % (run_id, row.part, row.line, encode(row.code), encode(row.message))
        for row in rows
    )


def _on_one_line(json: bytes) -> bytes:
    """The same JSON without line breaks, which it can only have between its parts."""
    if b"\n" in json or b"\r" in json:
        return msgspec.json.format(json, indent=-1)
    return json


RESULTS: Final = "results.ndjson"
ERRORS: Final = "errors.ndjson"
BAD_LINES: Final = "bad_lines.ndjson"
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
MEDIA_TYPE: Final = "application/zip"

_ROWS_MAX: Final = 2_000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_SENT_BYTES_MIN: Final = 1024 * 1024
_SHOWN_EVERY_TASKS: Final = 50_000

Lines = Callable[[Sequence[Any]], bytes]
"""How rows become lines."""
_Chunk = tuple[Sequence[Any], int | None]
"""Rows, and the number that the next ones come after; None if there are none."""


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of the zip, as it is when unpacked."""

    name: str
    lines: int
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What an export holds. ``complete`` says that the run had ended: nothing of it is missing.

    With ``all_runs`` that is the job as a whole, as of this run and those before it.
    """

    format: int
    batch_id: str
    run_id: str
    run_number: int
    all_runs: bool
    service: str
    endpoint: str
    created_at: datetime
    run_completed_at: datetime | None
    complete: bool
    counts: dict[str, int]
    files: list[ManifestFile]


class Exporter:
    """Writes exports. ``close`` it in the end."""

    def __init__(self, settings: Settings, blobs: BlobContainer) -> None:
        self._line = Connection(settings.database_url, name="exports", server_settings=PINNED_PLANS)
        self._blobs = blobs
        self._keep_seconds = settings.batch_url_seconds

    async def close(self) -> None:
        await self._line.close()

    async def write(self, job: Job, export: str) -> dict[str, int]:
        """Write the export of this id, for the job that was made for it."""
        claimed = cast(JobReporter, job.reporter).claimed
        try:
            uuid = from_text(export)
        except InvalidId as error:
            raise FailJob("there is no such export", code="export_not_found") from error
        order = await retried(lambda: exports.order(self._line, claimed.org, uuid))
        if order is None:
            return {"tasks": 0}  # another attempt has written it, or nobody wants it any more
        key = export_key(await retried(lambda: reports.deployment(self._line)), order.batch, uuid)
        runs = await retried(
            lambda: exports.runs(self._line, claimed.org, order.batch, order.run_number)
        )
        content = _Content(self._line, claimed, order, runs, job.check_cancelled)
        try:
            stored = await self._blobs.put(
                key,
                content.blocks(),
                media_type=MEDIA_TYPE,
                file_name=file_name(order.batch, None if order.all_runs else order.run),
            )
        except _Unwanted:
            return {"tasks": 0}
        except BlobStoreUnavailable as error:
            raise RetryLater(
                "the export could not be stored", code="blob_store_unavailable"
            ) from error
        finally:
            content.stopped = True
        crash_point("export.uploaded_not_marked")
        counts = await retried(
            lambda: exports.complete(
                self._line,
                claimed,
                uuid,
                key,
                stored.size,
                stored.sha256,
                content.tasks,
                keep_seconds=self._keep_seconds,
            )
        )
        if not counts:
            await self._blobs.delete([key])  # it is no longer ours, or no longer wanted
            return {"tasks": 0}
        return {"tasks": content.tasks}


class _Unwanted(Exception):
    """Nobody wants the rest of it."""


class _Content:
    """The bytes of one export, made as they are asked for."""

    def __init__(
        self,
        line: Connection,
        job: ClaimedJob,
        order: ExportOrder,
        runs: Sequence[ExportRun],
        check_cancelled: Callable[[], None],
    ) -> None:
        self._line = line
        self._job = job
        self._order = order
        self._runs = runs if order.all_runs else [run for run in runs if run.uuid == order.run]
        self._check_cancelled = check_cancelled
        self._counts: dict[str, int] = {}
        self._shown = 0
        self.tasks = 0
        self.stopped = False
        """Whether whoever asked has gone: the store may ask for more, in vain."""

    async def blocks(self) -> AsyncIterator[bytes]:
        """The whole zip."""
        pack = ZipStream(self._order.begun_at)
        try:
            async for block in self._members(pack):
                yield block
            pack.close()
            yield pack.take()
        finally:
            pack.close()

    async def _members(self, pack: ZipStream) -> AsyncIterator[bytes]:
        """Pack every file; gives what is to go on."""
        show = shown_result if self._order.endpoint == UPSTREAM_ENDPOINT else as_it_is
        members: list[Member] = []

        pack.begin(RESULTS)
        lines = partial(result_lines, show=show)
        async for block in self._ended(pack, State.COMPLETED, TaskStatus.SUCCEEDED, lines):
            yield block
        members.append(pack.end())

        pack.begin(ERRORS)
        for state, status in (
            (State.FAILED, TaskStatus.FAILED),
            (State.CANCELLED, TaskStatus.CANCELLED),
        ):
            lines = partial(error_lines, status=status)
            async for block in self._ended(pack, state, status, lines):
                yield block
        members.append(pack.end())

        pack.begin(BAD_LINES)
        async for block in self._bad_lines(pack):
            yield block
        members.append(pack.end())

        self._check_whole()
        pack.begin(MANIFEST)
        pack.write(msgspec.json.format(msgspec.json.encode(self._manifest(members))), 0)
        pack.end()

    async def _ended(
        self,
        pack: ZipStream,
        state: State,
        status: TaskStatus,
        lines: Lines,
    ) -> AsyncIterator[bytes]:
        """Pack the tasks that ended in ``state``; gives what is to go on."""
        written = 0
        async with aclosing(self._chunks(state)) as chunks:
            async for rows in chunks:
                await asyncio.to_thread(_pack, pack, lines, rows)
                written += len(rows)
                self.tasks += len(rows)
                crash_point("export.mid_file")
                await self._show_progress()
                if pack.waiting >= _SENT_BYTES_MIN:
                    yield pack.take()
        self._counts[status.value] = written

    async def _chunks(self, state: State) -> AsyncGenerator[Sequence[Any], None]:
        """The tasks that ended in ``state``, the newest run first, in order. One chunk is read
        ahead."""
        read = self._read_latest if self._order.all_runs else self._read
        for run in self._runs:
            if self._order.all_runs and _is_all_replaced(run, state):
                continue
            reading = asyncio.ensure_future(read(run, state, -1))
            try:
                while True:
                    rows, after = await reading
                    if after is None:
                        break
                    self._go_on()
                    reading = asyncio.ensure_future(read(run, state, after))
                    if rows:
                        yield rows
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, run: ExportRun, state: State, after: int) -> _Chunk:
        """The next tasks of a run, and the number of the last one; None if there are no more."""
        rows = await retried(
            lambda: exports.ended(
                self._line,
                self._job.org,
                run.uuid,
                state,
                after=after,
                rows_max=_ROWS_MAX,
                bytes_max=_CHUNK_BYTES,
            )
        )
        return rows, rows[-1]["task_index"] if rows else None

    async def _read_latest(self, run: ExportRun, state: State, after: int) -> _Chunk:
        """The same, of those only that no later run has taken in again. They may be none, and more
        to come."""
        runs = self._runs if self._is_complete else await self._runs_now()
        mirrors = [MirrorRun(each.number, each.uuid, each.mirrored, each.tasks) for each in runs]
        place = RunPlace(
            self._order.batch,
            run.uuid,
            run.number,
            mirrored_after(mirrors, run.number),
            self._order.run_number + 1,
        )
        org = self._job.org
        seen = await retried(
            lambda: tasks.latest_ended(
                self._line, org, place, state, after=after, looked_at_max=_ROWS_MAX
            )
        )
        if not seen.latest:
            return [], seen.last if seen.more else None
        rows = await retried(
            lambda: exports.of_numbers(
                self._line, org, run.uuid, state, seen.latest, bytes_max=_CHUNK_BYTES
            )
        )
        return rows, seen.last if len(rows) == len(seen.latest) else rows[-1]["task_index"]

    async def _runs_now(self) -> Sequence[ExportRun]:
        """The runs as they are: one that goes on takes tasks of those before it in."""
        order = self._order
        return await retried(
            lambda: exports.runs(self._line, self._job.org, order.batch, order.run_number)
        )

    async def _bad_lines(self, pack: ZipStream) -> AsyncIterator[bytes]:
        for run in reversed(self._runs):
            after = (0, 0)
            while rows := await retried(
                partial(
                    exports.bad_lines,
                    self._line,
                    self._job.org,
                    run.uuid,
                    after=after,
                    limit=_ROWS_MAX,
                )
            ):
                self._go_on()
                pack.write(bad_line_lines(rows, run.uuid), len(rows))
                after = (rows[-1].part, rows[-1].line)
                if pack.waiting >= _SENT_BYTES_MIN:
                    yield pack.take()

    async def _show_progress(self) -> None:
        if self.tasks - self._shown < _SHOWN_EVERY_TASKS:
            return
        self._shown = self.tasks
        ours = await retried(
            lambda: exports.show_progress(self._line, self._job, self._order.uuid, self.tasks)
        )
        if not ours:
            raise _Unwanted

    def _go_on(self) -> None:
        """Raise if nobody wants more of it."""
        if self.stopped:
            raise _Unwanted
        self._check_cancelled()

    def _check_whole(self) -> None:
        """Raise if tasks of a run that had ended are missing: then its batch is being removed."""
        if self._is_complete and self.tasks != self._total:
            raise FailJob("the run was removed while it was exported", code="batch_removed")

    @property
    def _is_complete(self) -> bool:
        return all(run.completed_at is not None for run in self._runs)

    @property
    def _total(self) -> int:
        """How many tasks there are to write, as of when it was begun."""
        return sum(run.new_tasks if self._order.all_runs else run.tasks for run in self._runs)

    def _manifest(self, members: Sequence[Member]) -> Manifest:
        order = self._order
        return Manifest(
            format=FORMAT,
            batch_id=to_text(order.batch),
            run_id=to_text(order.run),
            run_number=order.run_number,
            all_runs=order.all_runs,
            service=order.service,
            endpoint=order.service_endpoint,
            created_at=order.begun_at,
            run_completed_at=self._runs[0].completed_at,
            complete=self._is_complete,
            # An open run may have got more since.
            counts={"total": max(self._total, self.tasks), **self._counts},
            files=[
                ManifestFile(member.name, member.lines, member.size, member.sha256)
                for member in members
            ],
        )


def _is_all_replaced(run: ExportRun, state: State) -> bool:
    """Whether later runs have taken in again every task that ended so."""
    latest = {
        State.COMPLETED: run.latest_succeeded,
        State.FAILED: run.latest_failed,
        State.CANCELLED: run.latest_cancelled,
    }
    return run.completed_at is not None and latest[state] == 0


def _pack(pack: ZipStream, lines: Lines, rows: Sequence[Any]) -> None:
    pack.write(lines(rows), len(rows))
