"""Creates, reads and changes batches and their exports, for the routes and for Python programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.crash import crash_point
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.domain.errors import InvalidParameter, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text
from coatcheck.domain.job import NewJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.encoding import encode
from coatcheck.products.batches.dead_letter_repository import DeadLetterRepository, ingest_job
from coatcheck.products.batches.model import (
    DEFAULT_SOURCE,
    EXPORT_ENDPOINT,
    INGEST_ENDPOINT,
    BatchView,
    Created,
    ExportView,
    KnownKey,
    NewBatch,
    NewPart,
    NewTask,
    RerunSource,
    RunView,
    Selection,
)
from coatcheck.products.batches.queries import batches
from coatcheck.products.batches.queries import exports as export_store
from coatcheck.products.batches.task_repository import TaskRepository
from coatcheck.telemetry.job_stats import job_stats_of

_RETRIES: Final = 5
_KEEP_SECONDS: Final = 3_600
"""Retention of the job that writes an export. Nobody reads the job; the time only has to be long
enough for maintenance to copy its error into the export."""
_LISTED_MAX: Final = 100


class ExportRepository:
    """Creates and reads exports. Callers pass a batch that they have read, and so may see."""

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(
        self, view: BatchView, run: RunView | None, *, request_id: str | None
    ) -> ExportView:
        """Request an export of the ended tasks of a run; for None, of the batch as a whole: each
        task once, with its latest result. The request is durable when this returns.

        If the run has not ended, the export has the tasks that ended before it was written. Raises
        JobNotFound if the batch was deleted meanwhile.
        """
        export = new_id()
        job = self._job(view, export, request_id)
        last = run or view.current
        await retried(
            lambda: export_store.create(
                self._db, job, export, view.uuid, last.uuid, all_runs=run is None
            )
        )
        self._notifier.notify(READY, [EXPORT_ENDPOINT])
        return await self._get(view, export)

    async def get(self, view: BatchView, export_id: str) -> ExportView:
        """Read an export. Raises JobNotFound, also if it has expired."""
        try:
            export = from_text(export_id)
        except InvalidId as error:
            raise JobNotFound("there is no such export") from error
        return await self._get(view, export)

    async def list(self, view: BatchView) -> Sequence[ExportView]:
        """The newest exports of a batch."""
        return await retried(
            lambda: export_store.list_exports(self._db, view.org, view.uuid, _LISTED_MAX)
        )

    async def _get(self, view: BatchView, export: UUID) -> ExportView:
        found = await retried(lambda: export_store.get(self._db, view.org, view.uuid, export))
        if found is None:
            raise JobNotFound("there is no such export")
        return found

    @staticmethod
    def _job(view: BatchView, export: UUID, request_id: str | None) -> NewJob:
        options = {
            "keep_completed_seconds": _KEEP_SECONDS,
            "keep_failed_seconds": _KEEP_SECONDS,
            "webhook": INTERNAL,
        }
        return NewJob(
            view.org,
            new_id(),
            str(Lane.BULK),
            EXPORT_ENDPOINT,
            "",
            _RETRIES,
            encode({"export": to_text(export)}),
            request_id=request_id,
            options=encode(options).decode(),
        )


_PAGE_ROWS_MAX: Final = 200


class BatchRepository(EngineExtension):
    """Creates, reads and changes batches. An engine has one.

    A change may have to wait for another change of the same batch. Reads therefore use a connection
    of their own.
    """

    def __init__(self, context: EngineContext) -> None:
        db = self._db = context.db("batches", server_settings=PINNED_PLANS)
        read_db = self._read_db = context.background_db
        notifier = self._notifier = context.notifier
        self._job_stats = job_stats_of(db.database_url)
        self.tasks = TaskRepository(read_db)
        self.exports = ExportRepository(read_db, notifier)
        self.dead_letters = DeadLetterRepository(db, notifier)

    # Submitting

    async def create_small(self, new: NewBatch, part: NewPart, tasks: Sequence[NewTask]) -> Created:
        """Create a batch with all its tasks, in one transaction. They exist when this returns.

        An open batch accepts more tasks afterwards.
        """
        inserted = await retried(
            lambda: batches.create(self._db, new, part, tasks, len(tasks), None)
        )
        crash_point("submit.committed_not_answered")
        if inserted.created:
            self._job_stats.submitted({(new.org, new.lane): len(tasks)})
            self._ready(new)
        return _created(inserted, new.fingerprint)

    async def create(self, new: NewBatch, part: NewPart | None) -> Created:
        """Create a batch whose tasks a worker ingests; ``part`` is None for an open one without
        tasks.

        Raises UploadMissing if the part's upload cannot be used.
        """
        ingest = None if part is None else _ingest(new.org, part.uuid, new.request_id)
        inserted = await retried(lambda: batches.create(self._db, new, part, None, 0, ingest))
        crash_point("submit.committed_not_answered")
        if inserted.created:
            self._notifier.notify(READY, [INGEST_ENDPOINT])
            if _is_limited(new):
                self._notifier.notify(READY, None)
        return _created(inserted, new.fingerprint)

    async def add(
        self,
        org: str,
        batch: UUID,
        part: NewPart,
        tasks: Sequence[NewTask] | None,
        *,
        endpoint: str,
        lane: str = Lane.STANDARD,
        request_id: str | None = None,
    ) -> Created:
        """Add tasks to an open batch: ``tasks``, or, for None, those that a worker ingests from
        the part.

        Raises BatchNotOpen, JobNotFound, UploadMissing. ``endpoint`` and ``lane`` are the batch's.
        """
        ingest = _ingest(org, part.uuid, request_id) if tasks is None else None
        inserted = await retried(
            lambda: batches.add_part(self._db, org, batch, part, tasks, len(tasks or ()), ingest)
        )
        if inserted is None:
            raise JobNotFound("there is no such batch")
        if inserted.created:
            if tasks is not None:
                self._job_stats.submitted({(org, lane): len(tasks)})
            self._notifier.notify(READY, [INGEST_ENDPOINT if tasks is None else endpoint])
            self._changed(batch)
        return _created(inserted, part.fingerprint)

    async def find_key(self, org: str, idempotency_key: str) -> KnownKey | None:
        """The batch that holds an idempotency key."""
        return await retried(lambda: batches.find_key(self._read_db, org, idempotency_key))

    async def find_part_key(self, org: str, batch: UUID, idempotency_key: str) -> KnownKey | None:
        """The part of a batch that holds an idempotency key: added tasks, or a rerun."""
        return await retried(lambda: batches.find_part(self._read_db, org, batch, idempotency_key))

    # Reading

    async def get(self, batch_id: str, *, org: str) -> BatchView:
        """Read a batch. Raises JobNotFound; another organisation's id gets the same error as an id
        that does not exist."""
        view = await retried(partial(batches.get, self._read_db, org, _uuid(batch_id)))
        if view is None:
            raise JobNotFound("there is no such batch")
        return view

    async def get_of_run(self, run: UUID, *, org: str) -> BatchView:
        """Read the batch of a run. Raises JobNotFound."""
        view = await retried(lambda: batches.get_of_run(self._read_db, org, run))
        if view is None:
            raise JobNotFound("there is no such batch")
        return view

    async def list(
        self, org: str, *, owner: str | None, after: str | None = None, limit: int = 50
    ) -> Sequence[BatchView]:
        """List batches, newest first, each with its current run; of one owner, or of all (None).

        ``after`` is the last id of the previous page.
        """
        if not 1 <= limit <= _PAGE_ROWS_MAX:
            raise InvalidParameter("limit", f"must be 1 to {_PAGE_ROWS_MAX}")
        older_than = None if after is None else _uuid(after)
        return await retried(
            lambda: batches.list_page(
                self._read_db, org, owner=owner, after=older_than, limit=limit
            )
        )

    # Changing

    async def close(self, batch_id: str, *, org: str) -> BatchView:
        """Close an open batch. It accepts no more tasks, and completes when those it has end."""
        batch = _uuid(batch_id)
        return await self._after(
            batch, org, await retried(lambda: batches.close(self._db, org, batch))
        )

    async def cancel(self, batch_id: str, *, org: str) -> BatchView:
        """Cancel the batch's run: no more of its tasks start. Raises BatchAlreadyEnded."""
        batch = _uuid(batch_id)
        found = await retried(lambda: batches.cancel(self._db, org, batch))
        self._notifier.notify(READY, None)  # a limit now stops the run: claims must read it
        return await self._after(batch, org, found)

    async def delete(self, batch_id: str, *, org: str) -> None:
        """Delete a batch with all its tasks. Nobody can read it from now on. Raises JobNotFound."""
        batch = _uuid(batch_id)
        if not await retried(lambda: batches.delete(self._db, org, batch)):
            raise JobNotFound("there is no such batch")
        self._notifier.notify(READY, None)
        self._changed(batch)

    async def rerun(
        self,
        batch_id: str,
        selection: Selection,
        *,
        org: str,
        source: RerunSource = DEFAULT_SOURCE,
        idempotency_key: str | None = None,
        request_id: str | None = None,
    ) -> tuple[BatchView, Created]:
        """Rerun tasks of the batch, as a new run. Without a selection or a source: all tasks.

        ``source.run`` is one of its runs. Raises BatchStillRuns, NothingToRerun.
        """
        batch = _uuid(batch_id)
        run = new_id()
        asked = repr(selection) if source == DEFAULT_SOURCE else repr((selection, source))
        part = NewPart(
            new_id(),
            "rerun",
            idempotency_key=idempotency_key,
            fingerprint=asked.encode() if idempotency_key is not None else None,
        )
        ingest = _ingest(org, part.uuid, request_id)
        inserted = await retried(
            lambda: batches.rerun(
                self._db,
                org,
                batch,
                run,
                part,
                selection,
                ingest,
                lambda moved: _ingest(org, moved, request_id),
                source,
            )
        )
        self._notifier.notify(READY, None)
        view = await self._after(batch, org, inserted is not None)
        assert inserted is not None
        return view, _created(inserted, part.fingerprint)

    async def _after(self, batch: UUID, org: str, found: bool) -> BatchView:
        """Read the batch after a change, and wake everybody who waits for it."""
        view = await retried(partial(batches.get, self._read_db, org, batch)) if found else None
        if view is None:
            raise JobNotFound("there is no such batch")
        self._changed(batch)
        return view

    def _ready(self, new: NewBatch) -> None:
        # None wakes workers of every endpoint, and has them read the limits again.
        self._notifier.notify(READY, None if _is_limited(new) else [new.endpoint])

    def _changed(self, batch: UUID) -> None:
        self._notifier.notify(CHANGED, [batch.hex])


def _ingest(org: str, part: UUID, request_id: str | None) -> batches.StoredIngest:
    return batches.StoredIngest(part, ingest_job(org, part, request_id))


def _is_limited(new: NewBatch) -> bool:
    return bool(new.concurrency or new.rate_per_second or new.rate_key_per_second)


def _created(inserted: batches.Inserted, fingerprint: bytes | None) -> Created:
    mismatch = not inserted.created and inserted.fingerprint != fingerprint
    return Created(inserted.uuid, inserted.created, mismatch)


def _uuid(batch_id: str) -> UUID:
    try:
        return from_text(batch_id)
    except InvalidId as error:
        raise JobNotFound("there is no such batch") from error
