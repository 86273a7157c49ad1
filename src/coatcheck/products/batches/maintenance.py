"""Maintenance loops of batches: complete and cancel runs, remove batches, exports and blobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import upload_of, uploads_of
from coatcheck.blobs.pieces import delete_pieces
from coatcheck.core.queries import limits, uploads
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import CANCEL, CHANGED, READY, Notifier
from coatcheck.db.queries import in_transaction
from coatcheck.domain.errors import BlobStoreUnavailable
from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.retention import BlobKind, OrphanBlobSweeper, whole
from coatcheck.products.batches import export_repository as batch_exports
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches import repository
from coatcheck.products.batches.ingest_repository import LostPart, ingest_job
from coatcheck.products.batches.model import (
    ABANDONED_BATCH_SECONDS,
    INGEST_ENDPOINT,
    BatchFailure,
    export_of,
    exports_of,
    list_of_piece,
    lists_of,
    task_id,
)
from coatcheck.products.batches.queries import sql
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)
_RUN_COMPLETER_RUNS_MAX: Final = 200
_RUN_COMPLETER_POLL_SECONDS: Final = 0.2
"""A run completes at most this long after its last task was counted."""
SUCCESSES_SECONDS: Final = 10.0
"""The shortest time between two webhooks of a run that report succeeded tasks."""


class RunCompleter(Loop):
    """Completes the runs whose tasks have all ended, and reports succeeded tasks by webhook."""

    name: ClassVar[str] = "run completion"

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        super().__init__(db)
        self._notifier = notifier

    async def tick(self) -> float:
        completed = await repository.complete(self._db, _RUN_COMPLETER_RUNS_MAX)
        if completed:
            crash_point("batch.completed_not_notified")
        for run in completed:
            _log.info(
                "a run ended: %s",
                run.status,
                extra={"batch_id": to_text(run.batch), "run_id": to_text(run.run)},
            )
        await repository.notify_successes(self._db, SUCCESSES_SECONDS)
        if completed:
            self._notifier.notify(CHANGED, {run.batch.hex for run in completed})
        return 0.0 if len(completed) == _RUN_COMPLETER_RUNS_MAX else _RUN_COMPLETER_POLL_SECONDS


UPLOAD_GRACE: Final = timedelta(hours=1)
"""The row of an upload exists before its blob. But the slowest PUT that the server accepts writes
to the file this rarely."""
LIST_GRACE: Final = timedelta(hours=7)
"""A list may take six hours from its first piece to its row."""
EXPORT_GRACE: Final = timedelta(hours=1)
_BLOB_SWEEPER_ROWS_MAX: Final = 500


class BatchSweeper(OrphanBlobSweeper):
    """Deletes blobs of batches that no row refers to, and the rows of uploads that expired."""

    name: ClassVar[str] = "batch sweeper"
    kinds: ClassVar[Sequence[BlobKind]] = (
        BlobKind("uploads", uploads_of, UPLOAD_GRACE, whole(upload_of), uploads.known_uploads),
        BlobKind("lists", lists_of, LIST_GRACE, list_of_piece, ingest.known_lists),
        BlobKind("exports", exports_of, EXPORT_GRACE, whole(export_of), batch_exports.known),
    )

    async def tick(self) -> float:
        pause = await super().tick()
        await uploads.prune(self._db, _BLOB_SWEEPER_ROWS_MAX)
        return pause


CANCEL_RUNS_MAX: Final = 20
TASKS_MAX: Final = 1_000
_CANCEL_POLL_SECONDS: Final = 1.0


class CancellingRun(NamedTuple):
    """A cancelled run that has not completed."""

    org: str
    uuid: UUID
    batch: UUID


class BatchCanceller(Loop):
    """Ends the tasks of cancelled runs.

    The request that cancelled a run has stopped the claims of its tasks. This loop ends the run's
    ingest, cancels its waiting tasks, and asks the running ones to stop; RunCompleter completes the
    run when they have. The loop repeats this until then: it skips tasks that a claim holds, and
    finds them the next time.
    """

    name: ClassVar[str] = "batch canceller"

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        super().__init__(db)
        self._notifier = notifier
        self._job_stats = job_stats_of(db.database_url)
        self._after: CancellingRun | None = None

    async def tick(self) -> float:
        after = self._after or CancellingRun("", UUID(int=0), UUID(int=0))
        rows = await sql.fetch(
            self._db,
            "removal/cancelling",
            after_org=after.org,
            after_run=after.uuid,
            rows_max=CANCEL_RUNS_MAX,
        )
        runs = [CancellingRun(*row) for row in rows]
        self._after = runs[-1] if len(runs) == CANCEL_RUNS_MAX else None
        cancelled = [await self._end_tasks(run) for run in runs]
        more = self._after is not None or any(count >= TASKS_MAX for count in cancelled)
        return 0.0 if more else _CANCEL_POLL_SECONDS

    async def _end_tasks(self, run: CancellingRun) -> int:
        db, of_run = self._db, {"org": run.org, "run": run.uuid}
        await sql.fetch(db, "removal/end_ingest", **of_run)
        waiting = await sql.fetch(db, "removal/cancel_waiting", **of_run, rows_max=TASKS_MAX)
        cancelled: int
        ((cancelled, lane),) = waiting
        if lane is not None:
            self._job_stats.moved(run.org, lane, State.CANCELLED, jobs=cancelled)
        asked = await sql.fetch(db, "removal/request_cancel", **of_run, rows_max=TASKS_MAX)
        if asked:
            self._notifier.notify(CANCEL, [f"{task['boot']}:{task['id'].hex}" for task in asked])
        if asked or cancelled:
            self._notifier.notify(CHANGED, [run.batch.hex])
        return max(cancelled, len(asked))


BATCHES_MAX: Final = 5
_EXPIRED_MAX: Final = 100
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS_MAX: Final = 20
_EXPORTS_MAX: Final = 100
_REMOVE_POLL_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
"""The pause between two chunks, which leaves the disk to others."""


class DeletedBatch(NamedTuple):
    """A deleted batch, whose data is being removed. Callers cannot read it."""

    org: str
    uuid: UUID
    deleted_at: datetime


class OldRun(NamedTuple):
    """A run of a deleted batch. If it ``is_quiet``, nothing in it changes any more."""

    uuid: UUID
    tasks: int
    is_quiet: bool


class BatchRemover(Loop):
    """Removes deleted and expired batches, a chunk at a time.

    Each step removes some of what is left: blobs first, then the rows that refer to them, the batch
    itself last. So every step can be repeated, and no blob is left behind.
    """

    name: ClassVar[str] = "batch remover"

    def __init__(self, db: Connection, notifier: Notifier, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._notifier = notifier
        self._blobs = blobs
        self._after: DeletedBatch | None = None

    async def tick(self) -> float:
        if self._after is None:
            most, seconds = _EXPIRED_MAX, float(ABANDONED_BATCH_SECONDS)
            await sql.fetch(self._db, "removal/expire", batches_max=most, abandoned_seconds=seconds)
            await sql.fetch(self._db, "removal/close_idle", runs_max=most, seconds=seconds)
        after = self._after or DeletedBatch("", UUID(int=0), _LONG_AGO)
        rows = await sql.fetch(
            self._db,
            "removal/deleted",
            after_time=after.deleted_at,
            after_batch=after.uuid,
            rows_max=BATCHES_MAX,
        )
        batches = [DeletedBatch(*row) for row in rows]
        self._after = batches[-1] if len(batches) == BATCHES_MAX else None
        moved = False
        failed: BlobStoreUnavailable | None = None
        for batch in batches:
            try:
                moved |= await self._step(batch)
            except BlobStoreUnavailable as error:
                failed = error  # raised later, so that it does not delay the other batches
        if failed is not None:
            raise failed
        return _PAUSE_SECONDS if moved or self._after is not None else _REMOVE_POLL_SECONDS

    async def _step(self, batch: DeletedBatch) -> bool:
        """Remove some of a batch. Returns whether the next step can follow at once."""
        if await self._cancel_runs(batch):
            self._notifier.notify(READY, None)
        of_batch = {"org": batch.org, "batch": batch.uuid}
        runs = [OldRun(*row) for row in await sql.fetch(self._db, "removal/runs", **of_batch)]
        if not all(run.is_quiet for run in runs):
            return False  # BatchCanceller is still ending its tasks
        for run in runs:
            if run.tasks:
                await self._remove_tasks(batch, run)
                return True
        if await self._remove_exports(batch):
            return True
        for run in runs:
            if await self._remove_parts(batch, run):
                return True
        if await sql.value(self._db, "removal/finish", **of_batch):
            _log.info("removed a batch", extra={"batch_id": to_text(batch.uuid)})
            return True
        return False  # the usage rollup has not summed up what its tasks used yet

    async def _cancel_runs(self, batch: DeletedBatch) -> bool:
        """Cancel the batch's runs that have not ended, so that nobody claims their tasks. Returns
        whether there were any."""

        async def cancel(connection: RawConnection) -> bool:
            rows = await sql.fetch(
                connection, "removal/cancel_runs", org=batch.org, batch=batch.uuid
            )
            for row in rows:
                await limits.stop_run(connection, batch.org, row["id"])
            return bool(rows)

        return await in_transaction(self._db, cancel)

    async def _remove_tasks(self, batch: DeletedBatch, run: OldRun) -> None:
        """Remove the last tasks that a run still has: their blobs, then everything else."""
        left = max(0, run.tasks - TASKS_MAX)
        tasks = [UUID(bytes=task_id(run.uuid, index)) for index in range(left, run.tasks)]
        blobs = await sql.fetch(self._db, "removal/task_blobs", org=batch.org, ids=tasks)
        await self._blobs.delete([row["blob_key"] for row in blobs])
        crash_point("batch.remove_chunk_deleted")
        await sql.fetch(
            self._db,
            "removal/delete_tasks",
            org=batch.org,
            run=run.uuid,
            ids=tasks,
            tasks_before=run.tasks,
            tasks_after=left,
        )

    async def _remove_exports(self, batch: DeletedBatch) -> bool:
        exports = await sql.fetch(
            self._db, "exports/of_batch", org=batch.org, batch=batch.uuid, rows_max=_EXPORTS_MAX
        )
        await _delete_exports(self._db, self._blobs, exports)
        return bool(exports)

    async def _remove_parts(self, batch: DeletedBatch, run: OldRun) -> bool:
        parts = await sql.fetch(
            self._db, "removal/parts", org=batch.org, run=run.uuid, rows_max=_PARTS_MAX
        )
        if not parts:
            return False
        for part in parts:
            if part["source"] == "pieces" and part["source_key"] is not None:
                await delete_pieces(self._blobs, part["source_key"])
        keys = [part["upload_key"] for part in parts]
        await self._blobs.delete([key for key in keys if key is not None])
        await sql.fetch(
            self._db,
            "removal/delete_parts",
            org=batch.org,
            parts=[part["id"] for part in parts],
            uploads=[part["upload_id"] for part in parts if part["upload_id"] is not None],
        )
        return True


_EXPORT_ROWS_MAX: Final = 100
_EXPORT_POLL_SECONDS: Final = 2.0


class ExportExpirer(Loop):
    """Fails exports whose job ended without writing them, and deletes expired ones."""

    name: ClassVar[str] = "export expirer"

    def __init__(self, db: Connection, blobs: BlobContainer, *, keep_seconds: int) -> None:
        super().__init__(db)
        self._blobs = blobs
        self._keep_seconds = keep_seconds

    async def tick(self) -> float:
        rows_max, keep_seconds = _EXPORT_ROWS_MAX, self._keep_seconds
        failed = await sql.fetch(
            self._db, "exports/fail_lost", rows_max=rows_max, keep_seconds=keep_seconds
        )
        expired = await sql.fetch(self._db, "exports/expired", rows_max=rows_max)
        await _delete_exports(self._db, self._blobs, expired)
        return 0.0 if rows_max in (len(failed), len(expired)) else _EXPORT_POLL_SECONDS


async def _delete_exports(db: Connection, blobs: BlobContainer, exports: Sequence[Any]) -> None:
    """Delete exports that callers cannot read any more. Their blobs go first: a row that is left
    causes a retry."""
    if not exports:
        return
    # An export that was never written has no blob.
    await blobs.delete([one["blob_key"] for one in exports if one["blob_key"] is not None])
    orgs, ids = [one["org_id"] for one in exports], [one["id"] for one in exports]
    await sql.fetch(db, "exports/delete", orgs=orgs, ids=ids)


_INGEST_ROWS_MAX: Final = 200
_INGEST_POLL_SECONDS: Final = 3.0
RESUBMITS_MAX: Final = 3
"""How often a list that lost its job gets another one before it becomes a dead letter."""


class IngestReconciler(Loop):
    """Repairs ingests that lost their job.

    A list without a job gets another one, a few times. A list whose job failed becomes a dead
    letter, which callers can redrive. A run whose latch was missed, because a process died before
    it, is latched.
    """

    name: ClassVar[str] = "reconciler"

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        super().__init__(db)
        self._notifier = notifier

    async def tick(self) -> float:
        latched = await ingest.latch_missed(self._db, _INGEST_ROWS_MAX)
        if latched:
            self._notifier.notify(CHANGED, {batch.hex for batch in latched})
        lost = await ingest.lost_parts(self._db, _INGEST_ROWS_MAX)
        for part in lost:
            await self._settle(part)
        return 0.0 if _INGEST_ROWS_MAX in (len(latched), len(lost)) else _INGEST_POLL_SECONDS

    async def _settle(self, lost: LostPart) -> None:
        about = {"batch_id": to_text(lost.batch), "part_id": to_text(lost.part)}
        if lost.job_state != State.FAILED and lost.redrives < RESUBMITS_MAX:
            crash_point("reconcile.before_resubmit")
            job = ingest_job(lost.org, lost.part, lost.request_id)
            if await ingest.assign_job(self._db, lost, job):
                _log.warning("a list lost its ingest job and got another one", extra=about)
                self._notifier.notify(READY, [INGEST_ENDPOINT])
            return
        code, message = _error_of(lost)
        if await ingest.fail_part(self._db, lost.org, lost.part, code, message, lost.ingest_job):
            _log.warning("the ingest of a list failed: %s", code, extra=about)
            self._notifier.notify(CHANGED, [lost.batch.hex])


def _error_of(lost: LostPart) -> tuple[str, str]:
    if lost.job_state == State.FAILED and lost.error_code is not None:
        return lost.error_code, lost.error_message or ""
    return (
        BatchFailure.INGEST_LOST,
        f"the job that ingests the list was lost {lost.redrives + 1} times",
    )
