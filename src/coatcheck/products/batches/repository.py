"""Creates, reads, changes and completes batches, for routes, maintenance and Python programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final
from uuid import UUID

import asyncpg

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries import limits, uploads, webhooks
from coatcheck.crash import crash_point
from coatcheck.db.connection import PINNED_PLANS, Connection, RawConnection
from coatcheck.db.notifications import CHANGED, READY
from coatcheck.db.queries import fetch_or_die, in_transaction
from coatcheck.domain.errors import JobNotFound, UploadMissing
from coatcheck.domain.ids import InvalidId, from_text, new_id, run_queue_key
from coatcheck.domain.limits import RUN_TASKS_MAX, RUNS_MAX
from coatcheck.domain.listing import FIRST_PAGE, PageQuery
from coatcheck.domain.webhooks import target_id
from coatcheck.encoding import encode
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches.export_repository import ExportRepository
from coatcheck.products.batches.ingest_repository import NOTIFIES_FAILURES, DeadLetterRepository
from coatcheck.products.batches.model import (
    INGEST_ENDPOINT,
    BatchAlreadyEnded,
    BatchNotOpen,
    BatchState,
    BatchStillRuns,
    BatchView,
    Created,
    EarlierRun,
    KnownKey,
    NewBatch,
    NewPart,
    NewTask,
    NothingToRerun,
    RunFilter,
    RunPlace,
    RunView,
    TaskCounts,
    TooManyRuns,
    task_id,
)
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.task_repository import TaskRepository, earlier_runs
from coatcheck.telemetry.job_stats import job_stats_of

_PAGE_ROWS_MAX: Final = 200
_VIEW_COLUMNS: Final = 19
_EARLIER_COLUMNS: Final = 5


class BatchRepository(EngineExtension):
    """Creates, reads and changes batches. An engine has one.

    A change may have to wait for another change of the same batch. Reads therefore use a connection
    of their own.
    """

    def __init__(self, context: EngineContext) -> None:
        db = self._db = context.database.pooled(
            "batches", server_settings=PINNED_PLANS, is_long=True
        )
        read_db = self._read_db = context.background_db
        notifier = self._notifier = context.notifier
        self._job_stats = job_stats_of(db.database_url)
        self.tasks = TaskRepository(read_db)
        self.exports = ExportRepository(read_db, notifier)
        self.dead_letters = DeadLetterRepository(db, notifier)

    # Submitting

    async def create(
        self, new: NewBatch, part: NewPart | None, tasks: Sequence[NewTask] | None = None
    ) -> Created:
        """Create a batch with its first part, or find the batch that holds its key.

        ``tasks`` are all tasks of the part, and exist when this returns; without them, a worker
        ingests the part. ``part`` is None for an open batch without tasks. Raises UploadMissing if
        the part's upload cannot be used.
        """

        async def insert(connection: RawConnection) -> Created:
            target = await _add_webhook_target(connection, new)
            if not await sql.fetch(
                connection, "batches/create", **_new_columns(new, part, tasks, target)
            ):
                found = await _existing(connection, new.org, new.uuid, new.idempotency_key)
                if found is None:
                    # The batch that held the key was deleted since.
                    raise asyncpg.SerializationError("the idempotency key became free")
                return _known(found, new.uuid, new.fingerprint)
            if _is_limited(new):
                await limits.set_run_limits(
                    connection,
                    new.org,
                    new.run,
                    concurrency=new.concurrency,
                    per_second=new.rate_per_second,
                    key_per_second=new.rate_key_per_second,
                )
            if part is not None and part.upload is not None:
                await _use_upload(connection, new.org, part.upload, new.owner, new.uuid)
            if part is not None and tasks is None:
                await ingest.submit_job(connection, new.org, part.uuid, new.request_id)
            crash_point("batch.inserted_not_committed")
            return Created(new.uuid, True)

        created = await in_transaction(self._db, insert)
        crash_point("submit.committed_not_answered")
        if created.created:
            if tasks is not None:
                self._job_stats.submitted({(new.org, new.lane): len(tasks)})
            # None wakes workers of every endpoint, and has them read the limits again.
            woken = (
                None if _is_limited(new) else [INGEST_ENDPOINT if tasks is None else new.endpoint]
            )
            self._notifier.notify(READY, woken)
        return created

    async def add(
        self,
        org: str,
        batch: UUID,
        part: NewPart,
        tasks: Sequence[NewTask] | None,
        *,
        request_id: str | None = None,
    ) -> Created:
        """Add tasks to an open batch: ``tasks``, or, for None, those that a worker ingests from
        the part. Raises BatchNotOpen, JobNotFound, UploadMissing."""

        async def insert(connection: RawConnection) -> tuple[Created, asyncpg.Record]:
            locked = await _lock(connection, org, batch)
            known = await _known_part(connection, org, batch, part)
            if known is not None:
                return known, locked
            if locked["closed_at"] is not None:
                raise BatchNotOpen(
                    "The batch is closed: it accepts no more tasks."
                    if locked["is_open"]
                    else "The batch was not created as an open one (`type: open`)."
                )
            if locked["tasks"] + len(tasks or ()) > RUN_TASKS_MAX:
                raise BatchNotOpen(f"A run has at most {RUN_TASKS_MAX} tasks.")
            await _add_part(connection, org, locked, locked["run_id"], part, tasks)
            if part.upload is not None:
                await _use_upload(connection, org, part.upload, locked["owner"], batch)
            if tasks is None:
                await ingest.submit_job(connection, org, part.uuid, request_id)
            crash_point("batch.inserted_not_committed")
            return Created(part.uuid, True), locked

        created, of = await in_transaction(self._db, insert)
        if created.created:
            if tasks is not None:
                self._job_stats.submitted({(org, of["lane"]): len(tasks)})
            self._notifier.notify(READY, [INGEST_ENDPOINT if tasks is None else of["endpoint"]])
            self._changed(batch)
        return created

    async def find_key(self, org: str, idempotency_key: str) -> KnownKey | None:
        """The batch that holds an idempotency key."""
        row = await _existing(self._read_db, org, None, idempotency_key)
        return None if row is None else KnownKey(*row)

    async def find_part_key(self, org: str, batch: UUID, idempotency_key: str) -> KnownKey | None:
        """The part of a batch that holds an idempotency key: added tasks, or a rerun."""
        row = await _existing_part(self._read_db, org, batch, None, idempotency_key)
        return None if row is None else KnownKey(*row)

    # Reading

    async def get(self, batch_id: str, *, org: str) -> BatchView:
        """Read a batch. Raises JobNotFound; another organisation's id gets the same error as an id
        that does not exist."""
        return await read(self._read_db, org, _uuid(batch_id))

    async def get_of_run(self, run: UUID, *, org: str) -> BatchView:
        """Read the batch of a run. Raises JobNotFound."""
        return _view(await sql.fetch(self._read_db, "batches/get_of_run", org=org, run=run))

    async def list(
        self, org: str, asked: PageQuery = FIRST_PAGE, *, owner: str | None
    ) -> Sequence[BatchView]:
        """A page of batches, each with its current run; of one owner, or of all (None)."""
        rows = await sql.fetch(
            self._read_db,
            "batches/list",
            org=org,
            owner=owner,
            **asked.arguments(),
            limit=asked.limit,
        )
        return [
            replace(_view([row[:-_EARLIER_COLUMNS]]), earlier=TaskCounts(*row[-_EARLIER_COLUMNS:]))
            for row in rows
        ]

    # Changing

    async def close(self, batch_id: str, *, org: str) -> BatchView:
        """Close an open batch. It accepts no more tasks, and completes when those it has end."""
        batch = _uuid(batch_id)

        async def change(connection: RawConnection) -> None:
            locked = await _lock(connection, org, batch)
            await sql.fetch(connection, "batches/close", org=org, run=locked["run_id"])
            await ingest.latch(connection, org, locked["run_id"])

        await in_transaction(self._db, change)
        return await self._after(batch_id, org)

    async def cancel(self, batch_id: str, *, org: str) -> BatchView:
        """Cancel the batch's run: no more of its tasks start. Raises BatchAlreadyEnded."""
        batch = _uuid(batch_id)

        async def change(connection: RawConnection) -> None:
            locked = await _lock(connection, org, batch)
            if locked["completed_at"] is not None:
                raise BatchAlreadyEnded("The batch has ended.")
            await _stop(connection, org, locked["run_id"])
            crash_point("batch.cancel_not_committed")

        await in_transaction(self._db, change)
        self._notifier.notify(READY, None)  # a limit now stops the run: claims must read it
        return await self._after(batch_id, org)

    async def delete(self, batch_id: str, *, org: str) -> None:
        """Delete a batch with all its tasks. Nobody can read it from now on; maintenance removes
        its data. Raises JobNotFound."""
        batch = _uuid(batch_id)

        async def change(connection: RawConnection) -> None:
            locked = await _lock(connection, org, batch)
            await sql.fetch(connection, "batches/delete", org=org, batch=batch)
            if locked["completed_at"] is None:
                await _stop(connection, org, locked["run_id"])

        await in_transaction(self._db, change)
        self._notifier.notify(READY, None)
        self._changed(batch)

    async def rerun(
        self,
        batch_id: str,
        selection: RunFilter,
        *,
        org: str,
        source_run: UUID | None = None,
        all_runs: bool = False,
        idempotency_key: str | None = None,
        request_id: str | None = None,
    ) -> tuple[BatchView, Created]:
        """Rerun tasks of the batch, as a new run: tasks of one of its runs, ``source_run``; or with
        ``all_runs`` of the batch as a whole, which is each of its tasks with its latest result.
        With neither, a rerun without a selection repeats the whole batch, and one with a selection
        chooses from the current run.

        Raises BatchStillRuns, NothingToRerun and TooManyRuns. Lists whose ingest failed move to the
        new run; the old run then ends as cancelled.
        """
        batch = _uuid(batch_id)
        run = new_id()
        part = NewPart(new_id(), "rerun", idempotency_key=idempotency_key)
        if idempotency_key is not None:
            part = replace(part, fingerprint=repr((selection, source_run, all_runs)).encode())
        of_all = all_runs or (source_run is None and not selection)

        async def insert(connection: RawConnection) -> Created:
            locked = await _lock(connection, org, batch)
            known = await _known_part(connection, org, batch, part)
            if known is not None:
                return Created(run, True) if known.created else known
            stuck = await _check_rerunnable(connection, org, locked)
            number = locked["number"] + 1
            parent = source_run or locked["run_id"]
            runs = await earlier_runs(connection, org, batch, number)
            if selection:
                if stuck:
                    await _check_ended(connection, org, locked["run_id"])
                await _check_selected(
                    connection, org, batch, runs if of_all else None, parent, selection
                )
            elif not stuck and not _tasks_of(runs, None if of_all else parent):
                raise NothingToRerun("There are no tasks to rerun.")
            await sql.fetch(
                connection,
                "batches/rerun",
                org=org,
                batch=batch,
                run=run,
                number=number,
                parent=parent,
                selection=encode(selection).decode() if selection else None,
                all_runs=of_all,
            )
            await limits.set_run_limits(
                connection,
                org,
                run,
                concurrency=locked["concurrency"],
                per_second=locked["rate_per_second"],
                key_per_second=locked["rate_key_per_second"],
            )
            before = number if of_all else None
            await _add_part(connection, org, locked, run, part, None, source_before=before)
            await ingest.submit_job(connection, org, part.uuid, request_id)
            if stuck:
                moved = await sql.fetch(
                    connection,
                    "batches/move_failed_parts",
                    org=org,
                    old_run=locked["run_id"],
                    new_run=run,
                    repeats_old_run=not of_all and parent == locked["run_id"],
                )
                for row in moved:
                    await ingest.submit_job(connection, org, row["id"], request_id)
                await _stop(connection, org, locked["run_id"])
            crash_point("rerun.inserted_not_committed")
            return Created(run, True)

        created = await in_transaction(self._db, insert)
        self._notifier.notify(READY, None)
        return await self._after(batch_id, org), created

    async def _after(self, batch_id: str, org: str) -> BatchView:
        """Read the batch after a change, and wake everybody who waits for it."""
        view = await self.get(batch_id, org=org)
        self._changed(view.uuid)
        return view

    def _changed(self, batch: UUID) -> None:
        self._notifier.notify(CHANGED, [batch.hex])


async def read(db: Connection, org: str, batch: UUID) -> BatchView:
    """Read a batch on any connection. Raises JobNotFound."""
    return _view(await sql.fetch(db, "batches/get", org=org, batch=batch))


# For maintenance


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run that has just completed."""

    org: str
    batch: UUID
    run: UUID
    status: str


async def complete(db: Connection, runs_max: int) -> list[CompletedRun]:
    """Complete the runs whose tasks have all ended."""
    text, values = sql.bound("batches/complete", runs_max=runs_max)
    rows = await fetch_or_die(db, "batch.completed_not_committed", text, *values)
    return [CompletedRun(*row) for row in rows]


async def notify_successes(db: Connection, seconds: float) -> bool:
    """Write webhook deliveries for tasks that succeeded, at most one per run in ``seconds``.

    Returns whether some runs have to wait for their next delivery.
    """
    return bool(await sql.value(db, "batches/notify_successes", seconds=seconds))


# Steps of a transaction


async def _lock(connection: RawConnection, org: str, batch: UUID) -> asyncpg.Record:
    """Lock a batch and its current run. Raises JobNotFound."""
    await sql.fetch(connection, "batches/lock", org=org, batch=batch)
    row = await sql.first(connection, "batches/lock_run", org=org, batch=batch)
    if row is None:
        raise JobNotFound("there is no such batch")
    return row


async def _existing(
    db: Connection | RawConnection, org: str, batch: UUID | None, key: str | None
) -> asyncpg.Record | None:
    return await sql.first(db, "batches/find_existing", org=org, batch=batch, idempotency_key=key)


async def _existing_part(
    db: Connection | RawConnection, org: str, batch: UUID, part: UUID | None, key: str | None
) -> asyncpg.Record | None:
    return await sql.first(
        db, "batches/find_part", org=org, batch=batch, part=part, idempotency_key=key
    )


async def _known_part(
    connection: RawConnection, org: str, batch: UUID, part: NewPart
) -> Created | None:
    row = await _existing_part(connection, org, batch, part.uuid, part.idempotency_key)
    return None if row is None else _known(row, part.uuid, part.fingerprint)


async def _stop(connection: RawConnection, org: str, run: UUID) -> None:
    """Stop the claims of a run's tasks; maintenance cancels those that wait."""
    await sql.fetch(connection, "batches/cancel", org=org, run=run)
    await limits.stop_run(connection, org, run)


async def _check_rerunnable(connection: RawConnection, org: str, locked: asyncpg.Record) -> bool:
    """Returns whether the ingest of some of the run's lists failed, so that it does not end by
    itself. Raises BatchStillRuns and TooManyRuns."""
    left = await sql.first(connection, "batches/parts_left", org=org, run=locked["run_id"])
    assert left is not None, "an aggregate has one row"
    stuck = bool(
        locked["closed_at"] is not None and locked["cancel_requested_at"] is None and left["failed"]
    )
    if locked["completed_at"] is None and not stuck:
        raise BatchStillRuns("The batch's run has not ended; rerun it afterwards.")
    if left["waiting"]:  # the rest of the list would be in no run
        raise BatchStillRuns("A list of the batch is still being ingested.")
    if locked["number"] >= RUNS_MAX:
        raise TooManyRuns(f"A batch has at most {RUNS_MAX:,} runs; submit the tasks as a new job.")
    return stuck


async def _check_ended(connection: RawConnection, org: str, run: UUID) -> None:
    """Raise BatchStillRuns if tasks of the run have not ended. The rerun would end the run, and its
    selection, which goes by how tasks ended, would miss them."""
    if await sql.value(connection, "batches/tasks_left", org=org, run=run):
        raise BatchStillRuns(
            "Tasks of the batch have not ended: rerun all of them, or use the filter later."
        )


async def _check_selected(
    connection: RawConnection,
    org: str,
    batch: UUID,
    runs: Sequence[EarlierRun] | None,
    run: UUID,
    selection: RunFilter,
) -> None:
    """Raise NothingToRerun unless a task is selected: of ``run``, or, with ``runs``, among the
    latest tasks of the batch as a whole."""
    filters: dict[str, Any] = {
        "states": [state.value for state in selection.states],
        "error_codes": selection.error_code or None,
    }
    if runs is None:
        if await sql.value(connection, "batches/has_selected", org=org, run=run, **filters):
            return
        raise NothingToRerun("No task of the run matches the filter.")
    for each in reversed(runs):
        place = RunPlace.of(batch, each, runs, runs[-1].number + 1)._asdict()
        if await sql.value(connection, "batches/has_latest", org=org, **place, **filters):
            return
    raise NothingToRerun("No task's latest result matches the filter.")


def _tasks_of(runs: Sequence[EarlierRun], only: UUID | None) -> int:
    return sum(run.tasks for run in runs if only is None or run.uuid == only)


async def _add_webhook_target(connection: RawConnection, new: NewBatch) -> UUID | None:
    if new.webhook_url is None:
        return None
    target = target_id(new.org, new.webhook_url)
    await webhooks.upsert_targets(connection, [(new.org, target, new.webhook_url)])
    return target


async def _use_upload(
    connection: RawConnection, org: str, upload: UUID, owner: str, batch: UUID
) -> None:
    used = await uploads.use(connection, org=org, upload_id=upload, owner=owner, used_by=batch)
    if used is None:
        raise UploadMissing("The upload was already used, or it has expired.")


async def _add_part(
    connection: RawConnection,
    org: str,
    locked: asyncpg.Record,
    run: UUID,
    part: NewPart,
    tasks: Sequence[NewTask] | None,
    *,
    source_before: int | None = None,
) -> None:
    notifies = locked["webhook_target"] is not None and "task.failed" in locked["webhook_events"]
    first = locked["tasks"] if run == locked["run_id"] else 0
    await sql.fetch(
        connection,
        "batches/add_part",
        org=org,
        batch=locked["id"],
        run=run,
        webhook=NOTIFIES_FAILURES if notifies else None,
        source_before=source_before,
        **_part_columns(part),
        **_task_columns(run, tasks, first),
    )


def _new_columns(
    new: NewBatch, part: NewPart | None, tasks: Sequence[NewTask] | None, target: UUID | None
) -> dict[str, Any]:
    notifies = target is not None and "task.failed" in new.webhook_events
    columns = {
        **_part_columns(part or NewPart(new.uuid, "inline")),
        **asdict(new),  # the key and the fingerprint are the batch's
        "batch": new.uuid,
        "part": None if part is None else part.uuid,
        "webhook_target": target,
        "webhook": NOTIFIES_FAILURES if notifies else None,
        **_task_columns(new.run, tasks, 0),
    }
    del columns["uuid"], columns["webhook_url"]
    return columns


def _part_columns(part: NewPart) -> dict[str, Any]:
    columns = asdict(part)
    return {"part": columns.pop("uuid"), **columns}


def _task_columns(run: UUID, tasks: Sequence[NewTask] | None, first: int) -> dict[str, Any]:
    rows = tasks or ()
    return {
        "is_whole": tasks is not None,
        "ids": [UUID(bytes=task_id(run, first + number)) for number in range(len(rows))],
        "payloads": [task.payload for task in rows],
        "custom_ids": [task.custom_id for task in rows],
        "queue_keys": [run_queue_key(run, task.key) for task in rows],
    }


def _is_limited(new: NewBatch) -> bool:
    return bool(new.concurrency or new.rate_per_second or new.rate_key_per_second)


def _known(row: asyncpg.Record, new: UUID, fingerprint: bytes | None) -> Created:
    """What holds the key of a submission: ``new`` itself, sent twice, or an earlier one."""
    if row["id"] == new:
        return Created(new, True)
    return Created(row["id"], False, mismatch=row["fingerprint"] != fingerprint)


def _uuid(batch_id: str) -> UUID:
    try:
        return from_text(batch_id)
    except InvalidId as error:
        raise JobNotFound("there is no such batch") from error


def _view(rows: Sequence[asyncpg.Record | Sequence[Any]]) -> BatchView:
    """A batch of its rows, one for each run. Raises JobNotFound if there are none."""
    if not rows:
        raise JobNotFound("there is no such batch")
    runs = [_run(row[_VIEW_COLUMNS:]) for row in rows]
    columns_of_batch = (*rows[0][:_VIEW_COLUMNS], runs)
    return BatchView(*columns_of_batch)


def _run(row: Sequence[Any]) -> RunView:
    run, number, parent, selection, status, *counts = row[:10]
    return RunView(
        run, number, parent, selection, BatchState(status), TaskCounts(*counts), *row[10:]
    )
