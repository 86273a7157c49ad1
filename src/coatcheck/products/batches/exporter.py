"""Writes exports: streams the ended tasks of a run, or of a batch as a whole, into a zip.

Memory is bounded for runs of any length: a thread compresses a chunk of rows while the next chunk
is being read, and the compressed bytes go to the blob store at once. The blob is not visible before
it is complete, and only then the export becomes completed. An attempt that dies leaves at most a
blob under its own key, which no row refers to and which the sweeper deletes.

For a batch as a whole, runs are read newest first. So a task that a run repeats meanwhile is left
out, like any task that has not ended, and is never written twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import IO, Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import reports
from coatcheck.core.upstream_calls import shown_result
from coatcheck.crash import crash_point
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import BlobStoreUnavailable, FailJob, RetryLater
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.job import Job
from coatcheck.products.batches.lines import reading_ahead
from coatcheck.products.batches.model import (
    END_STATES,
    BatchFailure,
    EarlierRun,
    RunPlace,
    TaskStatus,
    export_key,
    task_id,
)
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.task_repository import earlier_runs, latest_ended
from coatcheck.settings import Settings
from coatcheck.worker.reports import JobReporter

_LEVEL: Final = 1
"""The fastest level compresses lines of JSON well; the best one takes many times as long."""
_YEAR_MIN: Final = 1980  # the earliest year in a zip


class _ZipBuffer:
    """The file that a zip is written to. It keeps the bytes until ``take``, and cannot seek."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self.size = 0

    def write(self, block: bytes) -> int:
        self._blocks.append(block)
        self.size += len(block)
        return len(block)

    def flush(self) -> None:
        """Does nothing: ``write`` has no buffer to flush."""

    def take(self) -> bytes:
        data = b"".join(self._blocks)
        self._blocks, self.size = [], 0
        return data


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of the zip, with its size and hash before compression."""

    name: str
    lines: int
    bytes: int
    sha256: str


class ZipStream:
    """Writes a zip as a stream, one member after the other: ``begin``, ``write`` repeatedly,
    ``end``.

    Between two calls, ``take`` returns the bytes of the zip that were written so far.
    """

    def __init__(self, written_at: datetime) -> None:
        self._buffer = _ZipBuffer()
        self._zip = zipfile.ZipFile(
            cast(IO[bytes], self._buffer), "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL
        )
        year, month, day, hour, minute, second, *_ = written_at.timetuple()
        self._date = (max(year, _YEAR_MIN), month, day, hour, minute, second)
        self._file: IO[bytes] | None = None
        self._name = ""
        self._lines = 0
        self._size = 0
        self._digest = hashlib.sha256()

    def begin(self, name: str) -> None:
        """Start a member."""
        info = zipfile.ZipInfo(name, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        self._file = self._zip.open(info, "w", force_zip64=True)
        self._name, self._lines, self._size, self._digest = name, 0, 0, hashlib.sha256()

    def write(self, block: bytes, lines: int) -> None:
        """Add a block to the member; ``lines`` is the number of its lines."""
        assert self._file is not None, "a member was begun"
        self._file.write(block)
        self._digest.update(block)
        self._lines += lines
        self._size += len(block)

    def end(self) -> ManifestFile:
        """End the member, and describe it."""
        assert self._file is not None, "a member was begun"
        self._file.close()
        self._file = None
        return ManifestFile(self._name, self._lines, self._size, self._digest.hexdigest())

    def close(self) -> None:
        """Write the end of the zip. A zip that is closed before all members ended is not usable."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._zip.close()

    @property
    def waiting(self) -> int:
        """How many bytes ``take`` would return."""
        return self._buffer.size

    def take(self) -> bytes:
        """The bytes that were written since the last call."""
        return self._buffer.take()


Show = Callable[[bytes], bytes]
"""Turns a stored result into the one that callers see."""


def file_name(batch: UUID, run: UUID | None) -> str:
    """The file name of a downloaded export: of a run, or, for None, of the batch as a whole."""
    return f"{to_text(batch)}.zip" if run is None else f"{to_text(batch)}-{to_text(run)}.zip"


def unchanged(result: bytes) -> bytes:
    return result


def task_lines(rows: Sequence[Any], status: TaskStatus, show: Show = unchanged) -> bytes:
    """Lines of tasks that ended as ``status``, from rows of ``exports/tasks_of_chunk``."""
    name = encode(status)
    lines: list[bytes] = []
    shown_at: dict[datetime, bytes] = {}
    run_ids: dict[UUID, bytes] = {}
    for row in rows:
        uuid, index, custom_id, attempts, at, result, code, message, files, position, run = row
        if run not in run_ids:
            run_ids[run] = to_text(run).encode()
        moment = shown_at.get(at)
        if moment is None:
            moment = shown_at[at] = encode(at)
        if status is TaskStatus.SUCCEEDED:
            value = b"null" if result is None else _on_one_line(show(result))
            outcome = b'"result":%b' % value
        else:
            outcome = b'"error":{"code":%b,"message":%b}' % (encode(code), encode(message))
        lines.append(
            b'{"id":"%b","run_id":"%b","index":%d,"job_index":%d,"custom_id":%b,"status":%b,%b,'
            b'"attempts":%d,"finished_at":%b%b}\n'
            % (
                uuid.hex.encode(),
                run_ids[run],
                index,
                position,
                encode(custom_id),
                name,
                outcome,
                attempts,
                moment,
                b"" if files is None else b',"artifacts":' + _on_one_line(files.encode()),
            )
        )
    return b"".join(lines)


def bad_line_lines(rows: Sequence[Any], run: UUID) -> bytes:
    """Lines that describe invalid lines, from rows of ``ingest/bad_lines``. ``part`` counts the
    lists of the run from 1."""
    run_id = to_text(run).encode()
    return b"".join(
        b'{"run_id":"%b","part":%d,"line":%d,"error":{"code":%b,"message":%b}}\n'
        % (run_id, part, line, encode(code), encode(message))
        for part, line, code, message in rows
    )


def _on_one_line(json: bytes) -> bytes:
    """The same JSON without line breaks, which can only occur between its tokens."""
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

_Chunk = tuple[Sequence[Any], int | None]
"""Rows, and the number of the task that the next rows follow; None if there are no more."""


class Manifest(msgspec.Struct, frozen=True):
    """The content of an export. ``complete`` is true if the run had ended: no task is missing.

    With ``all_runs`` the export has the job as a whole, as of this run and those before it.
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


class PendingExport(NamedTuple):
    """An export to write, with everything that writing it needs."""

    uuid: UUID
    batch: UUID
    run: UUID
    service: str
    service_endpoint: str
    endpoint: str
    run_number: int
    begun_at: datetime
    all_runs: bool
    """Whether it has the tasks of the batch as a whole, as of this run and those before it."""


class Exporter:
    """Writes exports."""

    def __init__(self, settings: Settings, blobs: BlobContainer, database: Database) -> None:
        self._db = database.pooled("exports", server_settings=PINNED_PLANS, is_long=True)
        self._blobs = blobs
        self._keep_seconds = settings.batch_url_seconds

    async def write(self, job: Job, export: str) -> dict[str, int]:
        """Write the export with this id, as the work of ``job``."""
        claimed = cast(JobReporter, job.reporter).claimed
        try:
            uuid = from_text(export)
        except InvalidId as error:
            raise FailJob("there is no such export", code=BatchFailure.EXPORT_NOT_FOUND) from error
        row = await sql.first(self._db, "exports/get_pending", org=claimed.org, export=uuid)
        if row is None:
            return {"tasks": 0}  # another attempt has written it, or its batch was deleted
        pending = PendingExport(*row)
        key = export_key(await reports.deployment(self._db), pending.batch, uuid)
        content = _Content(self._db, claimed, pending, job.check_cancelled)
        try:
            stored = await self._blobs.put(
                key,
                content.blocks(),
                media_type=MEDIA_TYPE,
                file_name=file_name(pending.batch, None if pending.all_runs else pending.run),
            )
        except _ExportStopped:
            return {"tasks": 0}
        except BlobStoreUnavailable as error:
            raise RetryLater(
                "the export could not be stored", code=BatchFailure.BLOB_STORE_UNAVAILABLE
            ) from error
        finally:
            content.stopped = True
        crash_point("export.uploaded_not_marked")
        if not await sql.fetch(
            self._db,
            "exports/complete",
            org=claimed.org,
            export=uuid,
            job=claimed.uuid,
            lease=claimed.lease,
            blob_key=key,
            size=stored.size,
            sha256=stored.sha256,
            tasks=content.tasks,
            keep_seconds=self._keep_seconds,
        ):
            await self._blobs.delete([key])  # the lease was lost, or the batch was deleted
            return {"tasks": 0}
        return {"tasks": content.tasks}


class _ExportStopped(Exception):
    """The rest of the export is not needed."""


class _Content:
    """The bytes of one export, produced on demand."""

    def __init__(
        self,
        db: Connection,
        job: ClaimedJob,
        pending: PendingExport,
        check_cancelled: Callable[[], None],
    ) -> None:
        self._db = db
        self._job = job
        self._export = pending
        self._runs: Sequence[EarlierRun] = ()
        """The runs whose tasks it has, newest first, as of its start."""
        self._check_cancelled = check_cancelled
        self._counts: dict[str, int] = {}
        self._shown = 0
        self.tasks = 0
        self.stopped = False
        """Whether the writer has ended: the blob store may still ask for more."""

    async def blocks(self) -> AsyncIterator[bytes]:
        """The whole zip."""
        pack = ZipStream(self._export.begun_at)
        runs = await self._runs_now()
        chosen = [run for run in runs if self._export.all_runs or run.uuid == self._export.run]
        self._runs = chosen[::-1]
        try:
            async for block in self._members(pack):
                yield block
            pack.close()
            yield pack.take()
        finally:
            pack.close()

    async def _members(self, pack: ZipStream) -> AsyncIterator[bytes]:
        """Write every file of the zip. Yields bytes of the zip."""
        pack.begin(RESULTS)
        async for block in self._ended(pack, TaskStatus.SUCCEEDED):
            yield block
        files = [pack.end()]
        pack.begin(ERRORS)
        for status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            async for block in self._ended(pack, status):
                yield block
        files.append(pack.end())
        pack.begin(BAD_LINES)
        async for block in self._bad_lines(pack):
            yield block
        files.append(pack.end())
        self._check_whole()
        pack.begin(MANIFEST)
        pack.write(msgspec.json.format(msgspec.json.encode(self._manifest(files))), 0)
        pack.end()

    async def _ended(self, pack: ZipStream, status: TaskStatus) -> AsyncIterator[bytes]:
        """Write the tasks that ended as ``status``. Yields bytes of the zip."""
        show = shown_result if self._export.endpoint == UPSTREAM_ENDPOINT else unchanged

        def write(rows: Sequence[Any]) -> None:
            pack.write(task_lines(rows, status, show), len(rows))

        written = 0
        async with (
            aclosing(self._chunks(status)) as source,
            aclosing(reading_ahead(source)) as chunks,
        ):
            async for rows in chunks:
                self._check_needed()
                await asyncio.to_thread(write, rows)
                written += len(rows)
                self.tasks += len(rows)
                crash_point("export.mid_file")
                await self._update_progress()
                if pack.waiting >= _SENT_BYTES_MIN:
                    yield pack.take()
        self._counts[status.value] = written

    async def _chunks(self, status: TaskStatus) -> AsyncGenerator[Sequence[Any], None]:
        """Chunks of the tasks that ended as ``status``, newest run first, by number within a
        run."""
        read = self._read_latest if self._export.all_runs else self._read
        for run in self._runs:
            if self._export.all_runs and _is_all_replaced(run, status):
                continue
            after: int | None = -1
            while after is not None:
                rows, after = await read(run, END_STATES[status], after)
                if rows:
                    yield rows

    async def _read(self, run: EarlierRun, state: State, after: int) -> _Chunk:
        """Read the next tasks of a run, and the number of the last; None if there are no more."""
        rows = await sql.fetch(
            self._db,
            "exports/ended",
            org=self._job.org,
            run=run.uuid,
            state=state.value,
            after=after,
            limit=_ROWS_MAX,
            bytes_max=_CHUNK_BYTES,
        )
        return rows, rows[-1]["task_index"] if rows else None

    async def _read_latest(self, run: EarlierRun, state: State, after: int) -> _Chunk:
        """The same, but only tasks that no later run has repeated. There may be none although more
        follow."""
        pending, org = self._export, self._job.org
        runs = self._runs if self._is_complete else await self._runs_now()
        place = RunPlace.of(pending.batch, run, runs, pending.run_number + 1)
        scanned = await latest_ended(
            self._db, org, place, state, after=after, scanned_max=_ROWS_MAX
        )
        if not scanned.latest:
            return [], scanned.last if scanned.more else None
        rows = await sql.fetch(
            self._db,
            "exports/ended_by_ids",
            org=org,
            run=run.uuid,
            state=state.value,
            ids=[UUID(bytes=task_id(run.uuid, number)) for number in scanned.latest],
            bytes_max=_CHUNK_BYTES,
        )
        return rows, scanned.last if len(rows) == len(scanned.latest) else rows[-1]["task_index"]

    async def _runs_now(self) -> Sequence[EarlierRun]:
        """Read the runs. One that has not ended may repeat more tasks of earlier ones later."""
        pending = self._export
        return await earlier_runs(self._db, self._job.org, pending.batch, pending.run_number + 1)

    async def _bad_lines(self, pack: ZipStream) -> AsyncIterator[bytes]:
        for run in reversed(self._runs):
            part = line = 0
            while rows := await sql.fetch(
                self._db,
                "ingest/bad_lines",
                org=self._job.org,
                run=run.uuid,
                after_position=part,
                after_line=line,
                limit=_ROWS_MAX,
            ):
                self._check_needed()
                pack.write(bad_line_lines(rows, run.uuid), len(rows))
                part, line, *_ = rows[-1]
                if pack.waiting >= _SENT_BYTES_MIN:
                    yield pack.take()

    async def _update_progress(self) -> None:
        if self.tasks - self._shown < _SHOWN_EVERY_TASKS:
            return
        self._shown = self.tasks
        if not await sql.fetch(
            self._db,
            "exports/update_progress",
            org=self._job.org,
            export=self._export.uuid,
            job=self._job.uuid,
            lease=self._job.lease,
            tasks=self.tasks,
        ):
            raise _ExportStopped

    def _check_needed(self) -> None:
        """Raise if the rest of the export is not needed."""
        if self.stopped:
            raise _ExportStopped
        self._check_cancelled()

    def _check_whole(self) -> None:
        """Raise if tasks of an ended run are missing: its batch is being removed."""
        if self._is_complete and self.tasks != self._total:
            raise FailJob("the run was removed during its export", code=BatchFailure.BATCH_REMOVED)

    @property
    def _is_complete(self) -> bool:
        return all(run.completed_at is not None for run in self._runs)

    @property
    def _total(self) -> int:
        """How many tasks the export has, as of its start."""
        return sum(run.new_tasks if self._export.all_runs else run.tasks for run in self._runs)

    def _manifest(self, files: list[ManifestFile]) -> Manifest:
        pending = self._export
        return Manifest(
            format=FORMAT,
            batch_id=to_text(pending.batch),
            run_id=to_text(pending.run),
            run_number=pending.run_number,
            all_runs=pending.all_runs,
            service=pending.service,
            endpoint=pending.service_endpoint,
            created_at=pending.begun_at,
            run_completed_at=self._runs[0].completed_at,
            complete=self._is_complete,
            # An open run may have more tasks by now.
            counts={"total": max(self._total, self.tasks), **self._counts},
            files=files,
        )


def _is_all_replaced(run: EarlierRun, status: TaskStatus) -> bool:
    """Whether later runs have repeated every task that ended as ``status``."""
    latest = {
        TaskStatus.SUCCEEDED: run.latest_succeeded,
        TaskStatus.FAILED: run.latest_failed,
        TaskStatus.CANCELLED: run.latest_cancelled,
    }
    return run.completed_at is not None and latest[status] == 0
