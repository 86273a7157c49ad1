"""Stores the reports of running jobs: the latest progress, log lines, chunks and files.

Reports of all jobs share statements; the next one is sent when the last is answered. All are fenced
by the job's lease: the database drops reports of a job that this worker no longer holds.

Pending reports are limited in bytes, per job and per worker. A handler that awaits its reports (or
runs in a thread or a process, where the call itself blocks) is slowed down beyond that. An async
handler that does not await them runs on the worker's loop, where nothing can slow it down: beyond a
higher limit its reports raise an error.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key
from coatcheck.core.artifacts import ArtifactDeleter
from coatcheck.core.queries import reports
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, Notifier
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown, ReportsNotAwaited
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import (
    OUTPUT_CHUNK_BYTES_MAX,
    REPORT_OVERHEAD_BYTES,
    REPORTS_WAITING_BYTES,
    REPORTS_WAITING_BYTES_PER_JOB,
    UNAWAITED_REPORTS_BYTES,
    UNAWAITED_REPORTS_BYTES_PER_JOB,
)
from coatcheck.domain.retry import DATABASE_BACKOFF
from coatcheck.job import DONE, Attachment, Chunk, LogLine, ProgressReport, Report
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)
_REPORTS: Final = CountedBound(
    "reports",
    of="log lines and chunks of a job that wait to be stored",
    over="worker",
    value=f"{REPORTS_WAITING_BYTES_PER_JOB // 1024} KiB a job, "
    f"{REPORTS_WAITING_BYTES // 1024**2} MiB a worker",
    response="the handler waits; if it does not await its reports: `reports_not_awaited` at "
    f"{UNAWAITED_REPORTS_BYTES_PER_JOB // 1024**2} MiB",
)
_EVENTS_PER_STATEMENT = 500
_BYTES_PER_STATEMENT = 4 * 1024 * 1024

_Event = tuple[ClaimedJob, str, bytes]
Result = TypeVar("Result")

_SETTLE_STOPPED_SECONDS = 1.0
"""How long the reports of a stopped job may delay its end."""

_encode = msgspec.json.Encoder().encode


class ReportWriter:
    """Accepts the reports of all jobs of a worker and stores them."""

    def __init__(
        self, db: Connection, notifier: Notifier, blobs: Callable[[], BlobContainer]
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._blobs = blobs
        self._deployment: UUID | None = None
        self._progress: dict[int, tuple[ClaimedJob, float, str | None]] = {}
        self._events: list[_Event] = []
        self._waiting = WaitingBytes()
        self._unanswered: tuple[list[_Event], int] | None = None
        self._refused: dict[int, Exception] = {}
        self._uploads: dict[int, set[asyncio.Task[None]]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._sent = asyncio.Condition()

    def take(self, claimed: ClaimedJob, report: Report) -> Awaitable[None]:
        """Accept a report, on the worker's event loop."""
        match report:
            case ProgressReport(fraction=fraction, note=note):
                earlier = self._progress.get(id(claimed))
                kept = note if note is not None or earlier is None else earlier[2]
                self._progress[id(claimed)] = (claimed, fraction, kept)
            case LogLine():
                self._add((claimed, "log", _encode(_log_data(report))))
            case Chunk(kind=kind, data=data):
                self._add((claimed, kind, data))
            case Attachment():
                return self._upload(claimed, report)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        if not self._waiting.is_full_for(claimed):
            return DONE
        metrics.record_bound_met(_REPORTS)
        return _ReportBudget(self, claimed)

    def _add(self, event: _Event) -> None:
        claimed = event[0]
        if self._waiting.overflows_for(claimed):
            metrics.record_bound_met(_REPORTS)
            raise ReportsNotAwaited(self._waiting.of(claimed))
        self._waiting.add(event)
        self._events.append(event)

    async def settle(self, claimed: ClaimedJob) -> None:
        """Wait until all reports of the job are stored. Raises if storing failed."""
        uploads = self._uploads.pop(id(claimed), None)
        if uploads:
            await asyncio.gather(*uploads)
        async with self._sent:
            await self._sent.wait_for(lambda: not self._has_unsent(claimed))
        refused = self._refused.pop(id(claimed), None)
        if refused is not None:
            raise refused

    async def settle_stopped(self, claimed: ClaimedJob) -> None:
        """Store the reports of a stopped job, if that is quick; its uploads are dropped."""
        for upload in self._uploads.pop(id(claimed), ()):
            upload.cancel()
        try:
            async with asyncio.timeout(_SETTLE_STOPPED_SECONDS):
                await self.settle(claimed)
        except TimeoutError:
            self.forget(claimed)
        except Exception as error:  # noqa: BLE001 - the job ends for another reason, which stands
            _log.warning("the reports of a stopped job were not stored: %s", type(error).__name__)
            self.forget(claimed)

    async def room(self, claimed: ClaimedJob) -> None:
        """Wait until there is room for more reports of a job."""
        async with self._sent:
            await self._sent.wait_for(lambda: not self._waiting.is_full_for(claimed))

    def forget(self, claimed: ClaimedJob) -> None:
        """Drop the remaining reports of a job that no longer counts."""
        self._progress.pop(id(claimed), None)
        self._refused.pop(id(claimed), None)
        self._drop(lambda event: event[0] is claimed)
        for upload in self._uploads.pop(id(claimed), ()):
            upload.cancel()

    def _has_unsent(self, claimed: ClaimedJob) -> bool:
        return id(claimed) in self._progress or self._waiting.of(claimed) > 0

    async def _send(self) -> None:
        failures = 0
        try:
            while self._progress or self._events:
                progress = dict(self._progress)
                events = self._next_events()
                try:
                    if progress:
                        await reports.set_progress(self._db, list(progress.values()))
                    if events:
                        events = await self._store_events(events)
                except (DatabaseUnavailable, OutcomeUnknown) as error:
                    _log.info("reports not stored yet: %s", error)
                    await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
                    failures += 1
                    continue
                except Exception as error:  # noqa: BLE001 - settle() raises it for their jobs
                    _log.exception("the database refused reports")
                    for claimed, *_ in [*progress.values(), *events]:
                        self._refused[id(claimed)] = error
                failures = 0
                crash_point("reports.committed")
                self._remove(progress, events)
                changed = {entry[0].uuid.hex for entry in progress.values()}
                changed.update(event[0].uuid.hex for event in events)
                self._notifier.notify(CHANGED, changed)
                async with self._sent:
                    self._sent.notify_all()
            # Dropped reports made room, too.
            async with self._sent:
                self._sent.notify_all()
        finally:
            self._sender = None

    def _next_events(self) -> list[_Event]:
        """The first events, as many as one statement takes."""
        events: list[_Event] = []
        size = 0
        for event in self._events[:_EVENTS_PER_STATEMENT]:
            size += len(event[2])
            if events and size > _BYTES_PER_STATEMENT:
                break
            events.append(event)
        return events

    async def _store_events(self, events: list[_Event]) -> list[_Event]:
        """Store these events, or detect that an earlier statement without an answer stored them."""
        if self._unanswered is not None:
            sent, batch = self._unanswered
            for claimed in {id(event[0]): event[0] for event in sent}.values():
                if await reports.events_added(self._db, claimed, batch):
                    self._unanswered = None
                    return sent
        batch = random.getrandbits(63)
        try:
            await reports.add_events(self._db, events, batch)
        except OutcomeUnknown:
            self._unanswered = (events, batch)
            raise
        self._unanswered = None
        return events

    def _remove(
        self,
        progress: dict[int, tuple[ClaimedJob, float, str | None]],
        events: list[_Event],
    ) -> None:
        for key, entry in progress.items():
            if self._progress.get(key) is entry:
                del self._progress[key]
        sent = {id(event) for event in events}
        self._drop(lambda event: id(event) in sent)

    def _drop(self, unwanted: Callable[[_Event], bool]) -> None:
        kept = []
        for event in self._events:
            if unwanted(event):
                self._waiting.remove(event)
            else:
                kept.append(event)
        self._events = kept

    def _upload(self, claimed: ClaimedJob, attachment: Attachment) -> asyncio.Task[None]:
        task = asyncio.create_task(self._store(claimed, attachment))
        self._uploads.setdefault(id(claimed), set()).add(task)
        return task

    async def _deployment_id(self) -> UUID:
        if self._deployment is None:
            self._deployment = await reports.deployment(self._db)
        return self._deployment

    async def _store(self, claimed: ClaimedJob, attachment: Attachment) -> None:
        blobs = self._blobs()
        stored = await blobs.put(
            artifact_key(await _until_available(self._deployment_id), claimed.uuid),
            attachment.data,
            media_type=attachment.media_type,
            file_name=attachment.name,
        )
        crash_point("artifact.blob_stored")
        ours, replaced = await _until_available(
            partial(
                reports.add_artifact,
                self._db,
                claimed,
                name=attachment.name,
                blob_key=stored.key,
                media_type=attachment.media_type,
                size=stored.size,
                sha256=stored.sha256,
            )
        )
        if not ours:
            await blobs.delete([stored.key])
        elif replaced is not None:
            await _until_available(partial(ArtifactDeleter(self._db, blobs).delete, [replaced]))


class WaitingBytes:
    """Counts the bytes of pending log lines and chunks, per job and in total."""

    __slots__ = ("_by_job", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_job: dict[int, int] = {}

    def of(self, claimed: ClaimedJob) -> int:
        return self._by_job.get(id(claimed), 0)

    def add(self, event: _Event) -> None:
        size = len(event[2]) + REPORT_OVERHEAD_BYTES
        self.total += size
        self._by_job[id(event[0])] = self.of(event[0]) + size

    def remove(self, event: _Event) -> None:
        size = len(event[2]) + REPORT_OVERHEAD_BYTES
        self.total -= size
        left = self.of(event[0]) - size
        if left:
            self._by_job[id(event[0])] = left
        else:
            del self._by_job[id(event[0])]

    def is_full_for(self, claimed: ClaimedJob) -> bool:
        """Whether a handler must wait before it reports more."""
        return (
            self.total >= REPORTS_WAITING_BYTES or self.of(claimed) >= REPORTS_WAITING_BYTES_PER_JOB
        )

    def overflows_for(self, claimed: ClaimedJob) -> bool:
        """Whether a handler did not wait when it had to, and too much has piled up.

        A handler that always waits exceeds its own limit by one report at most. It never gets this
        error because of others: only those over their own limit are subject to the total limit.
        """
        own = self.of(claimed)
        return own >= UNAWAITED_REPORTS_BYTES_PER_JOB or (
            own >= REPORTS_WAITING_BYTES_PER_JOB + OUTPUT_CHUNK_BYTES_MAX
            and self.total >= UNAWAITED_REPORTS_BYTES
        )


async def _until_available(operation: Callable[[], Awaitable[Result]]) -> Result:
    """Retry an idempotent operation until the database is available, as for other reports.

    An outage is not the job's failure. If its lease expires meanwhile, the job is stopped and its
    uploads with it."""
    for failures in itertools.count():
        try:
            return await operation()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("an attachment is not stored yet: %s", error)
        await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
    raise AssertionError("never reached")


class JobReporter(msgspec.Struct, eq=False):
    """Receives the reports of one job."""

    writer: ReportWriter
    claimed: ClaimedJob
    used: bool = False

    def report(self, report: Report) -> Awaitable[None]:
        self.used = True
        return self.writer.take(self.claimed, report)


class _ReportBudget:
    """Waits, if awaited, until there is room for more reports."""

    __slots__ = ("_claimed", "_store")

    def __init__(self, store: ReportWriter, claimed: ClaimedJob) -> None:
        self._store = store
        self._claimed = claimed

    def __await__(self) -> Generator[Any, None, None]:
        return self._store.room(self._claimed).__await__()


def _log_data(line: LogLine) -> dict[str, object]:
    return {"level": line.level, "message": line.message, "fields": line.fields}
