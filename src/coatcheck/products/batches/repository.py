"""Batches: jobs of one task or a million. What the batches surface is written on."""

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
    EXPORT_ENDPOINT,
    INGEST_ENDPOINT,
    UNNAMED_SOURCE,
    BatchView,
    Created,
    ExportView,
    Known,
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
"""Of the job that writes it, which nobody reads; long enough for its error to be noted."""
_LISTED_MAX: Final = 100


class ExportRepository:
    """Exports of batches that the caller has read, and so may see."""

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(
        self, view: BatchView, run: RunView | None, *, request_id: str | None
    ) -> ExportView:
        """Ask for an export of what has ended of a run, or, for None, of the batch as a whole: each
        task once, with its latest result. Durable when this returns.

        Of a run that goes on, it holds what has ended by the time it is written. Raises
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
        self._notifier.say(READY, [EXPORT_ENDPOINT])
        return await self._get(view, export)

    async def get(self, view: BatchView, export_id: str) -> ExportView:
        """An export as it is now. Raises JobNotFound, also once its time is up."""
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
    """Creates batches, reads them and changes them. An engine has one.

    Whoever changes a batch may have to wait for who changes it just now: readers, of whatever
    batch, have a line of their own.
    """

    def __init__(self, context: EngineContext) -> None:
        db = self._db = context.db("batches", server_settings=PINNED_PLANS)
        read_db = self._read_db = context.background_db
        notifier = self._notifier = context.notifier
        self._job_stats = job_stats_of(db.database_url)
        self.tasks = TaskRepository(read_db)
        self.exports = ExportRepository(read_db, notifier)
        self.dead_letters = DeadLetterRepository(db, notifier)

    # Handing in

    async def create_small(self, new: NewBatch, part: NewPart, tasks: Sequence[NewTask]) -> Created:
        """Create a batch with all its tasks, in one transaction: they are there when this returns.

        An open one takes more afterwards.
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
        """Create a batch whose tasks are taken in by a worker; None for an open one without any.

        Raises UploadMissing if the part's upload cannot be used.
        """
        ingest = None if part is None else _ingest(new.org, part.uuid, new.request_id)
        inserted = await retried(lambda: batches.create(self._db, new, part, None, 0, ingest))
        crash_point("submit.committed_not_answered")
        if inserted.created:
            self._notifier.say(READY, [INGEST_ENDPOINT])
            if _is_limited(new):
                self._notifier.say(READY, None)
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
        """Give an open batch more tasks: these, or what a worker takes in of the part.

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
            self._notifier.say(READY, [INGEST_ENDPOINT if tasks is None else endpoint])
            self._changed(batch)
        return _created(inserted, part.fingerprint)

    async def find_key(self, org: str, idempotency_key: str) -> Known | None:
        """The batch that holds a key."""
        return await retried(lambda: batches.find_key(self._read_db, org, idempotency_key))

    async def find_part_key(self, org: str, batch: UUID, idempotency_key: str) -> Known | None:
        """The part of a batch, or the run made of it, that holds a key."""
        return await retried(lambda: batches.find_part(self._read_db, org, batch, idempotency_key))

    # Reading

    async def get(self, batch_id: str, *, org: str) -> BatchView:
        """A batch as it is now. Raises JobNotFound, the same for a foreign id as for an absent."""
        view = await retried(partial(batches.get, self._read_db, org, _uuid(batch_id)))
        if view is None:
            raise JobNotFound("there is no such batch")
        return view

    async def get_of_run(self, run: UUID, *, org: str) -> BatchView:
        """The batch that a run is of, as it is now. Raises JobNotFound."""
        view = await retried(lambda: batches.get_of_run(self._read_db, org, run))
        if view is None:
            raise JobNotFound("there is no such batch")
        return view

    async def list(
        self, org: str, *, owner: str | None, after: str | None = None, limit: int = 50
    ) -> Sequence[BatchView]:
        """Batches, newest first, each with its current run; of one owner, or of all.

        ``after`` is the last id of the page before.
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
        """Take no more tasks in: the batch completes once those it has have ended."""
        batch = _uuid(batch_id)
        return await self._after(
            batch, org, await retried(lambda: batches.close(self._db, org, batch))
        )

    async def cancel(self, batch_id: str, *, org: str) -> BatchView:
        """Ask for the end of the batch's run: no more of it starts. Raises BatchAlreadyEnded."""
        batch = _uuid(batch_id)
        found = await retried(lambda: batches.cancel(self._db, org, batch))
        self._notifier.say(READY, None)  # a limit was set
        return await self._after(batch, org, found)

    async def delete(self, batch_id: str, *, org: str) -> None:
        """Delete a batch with all its tasks: nobody sees it from now on. Raises JobNotFound."""
        batch = _uuid(batch_id)
        if not await retried(lambda: batches.delete(self._db, org, batch)):
            raise JobNotFound("there is no such batch")
        self._notifier.say(READY, None)
        self._changed(batch)

    async def rerun(
        self,
        batch_id: str,
        selection: Selection,
        *,
        org: str,
        source: RerunSource = UNNAMED_SOURCE,
        idempotency_key: str | None = None,
        request_id: str | None = None,
    ) -> tuple[BatchView, Created]:
        """Run tasks of the batch again, as a new run: without a selection or a source, all of them.

        ``source.run`` is one of its runs. Raises BatchStillRuns, NothingToRerun.
        """
        batch = _uuid(batch_id)
        run = new_id()
        asked = repr(selection) if source == UNNAMED_SOURCE else repr((selection, source))
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
        self._notifier.say(READY, None)
        view = await self._after(batch, org, inserted is not None)
        assert inserted is not None
        return view, _created(inserted, part.fingerprint)

    async def _after(self, batch: UUID, org: str, found: bool) -> BatchView:
        """The batch after a change; tells whoever waits for it."""
        view = await retried(partial(batches.get, self._read_db, org, batch)) if found else None
        if view is None:
            raise JobNotFound("there is no such batch")
        self._changed(batch)
        return view

    def _ready(self, new: NewBatch) -> None:
        # Empty is "look yourself", for limits as well.
        self._notifier.say(READY, None if _is_limited(new) else [new.endpoint])

    def _changed(self, batch: UUID) -> None:
        self._notifier.say(CHANGED, [batch.hex])


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
