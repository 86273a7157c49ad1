"""Queries of batches: create, read, change and complete them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import asyncpg

from coatcheck.core.queries import limits, uploads, webhooks
from coatcheck.core.queries import sql as core_sql
from coatcheck.core.queries.jobs import columns
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.crashing import fetch_or_die
from coatcheck.domain.errors import UploadMissing
from coatcheck.domain.ids import newest_possible
from coatcheck.domain.job import NewJob
from coatcheck.domain.limits import RUN_TASKS_MAX, RUNS_MAX
from coatcheck.domain.runs import run_queue_key
from coatcheck.domain.webhooks import target_id
from coatcheck.encoding import encode
from coatcheck.products.batches.errors import (
    BatchAlreadyEnded,
    BatchNotOpen,
    BatchStillRuns,
    NothingToRerun,
    TooManyRuns,
)
from coatcheck.products.batches.model import (
    DEFAULT_SOURCE,
    BatchState,
    BatchView,
    KnownKey,
    MirrorRun,
    NewBatch,
    NewPart,
    NewTask,
    RerunSource,
    RunView,
    Selection,
    TaskCounts,
    TaskStatus,
    mirrored_after,
    task_id,
)
from coatcheck.products.batches.queries import ingest as batch_ingest
from coatcheck.products.batches.queries import positions, sql
from coatcheck.products.batches.queries.positions import EarlierRun
from coatcheck.products.batches.queries.task_copy import NOTIFIES_FAILURES

_VIEW_COLUMNS = 19
_EARLIER_COLUMNS = 5
_STATES = {
    TaskStatus.SUCCEEDED: "completed",
    TaskStatus.FAILED: "failed",
    TaskStatus.CANCELLED: "cancelled",
}
"""The final states of tasks, as values of ``jobs.state``."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """The batch or part that was created, or the existing one that holds its key."""

    uuid: UUID
    created: bool
    fingerprint: bytes | None


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run that has just completed."""

    org: str
    batch: UUID
    run: UUID
    status: str


@dataclass(frozen=True, slots=True)
class StoredIngest:
    """A part, and the job that ingests it."""

    part: UUID
    job: NewJob


async def create(
    db: Connection,
    new: NewBatch,
    part: NewPart | None,
    tasks: Sequence[NewTask] | None,
    lines: int,
    ingest: StoredIngest | None,
) -> Inserted:
    """Create a batch with its first part, in one transaction; or find the batch that holds its key.

    ``tasks`` are all tasks of the part, which has ``lines`` lines; None if the job ``ingest``
    writes them later. Raises UploadMissing if the part's upload cannot be used.
    """

    async def insert(connection: RawConnection) -> Inserted:
        async with connection.transaction():
            target = await _add_webhook_target(connection, new)
            rows = await connection.fetch(
                sql("batches/create"), *_new_columns(new, part, tasks, lines, target)
            )
            if not rows:
                found = await connection.fetch(
                    sql("batches/find_existing"), new.org, new.uuid, new.idempotency_key
                )
                if not found:
                    # The batch that held the key was deleted since.
                    raise asyncpg.SerializationError("the idempotency key became free")
                return Inserted(found[0]["id"], found[0]["id"] == new.uuid, found[0]["fingerprint"])
            if new.concurrency or new.rate_per_second or new.rate_key_per_second:
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
            if ingest is not None:
                await _submit_ingest(connection, new.org, ingest)
            crash_point("batch.inserted_not_committed")
            return Inserted(new.uuid, True, new.fingerprint)

    return await db.run(insert)


async def find_key(db: Connection, org: str, idempotency_key: str) -> KnownKey | None:
    """The batch that holds an idempotency key."""
    rows = await db.fetch(sql("batches/find_key"), org, idempotency_key)
    return KnownKey(rows[0]["id"], rows[0]["fingerprint"]) if rows else None


async def find_part(db: Connection, org: str, batch: UUID, idempotency_key: str) -> KnownKey | None:
    """The part of a batch that holds an idempotency key."""
    rows = await db.fetch(sql("batches/find_part"), org, batch, idempotency_key, None)
    return KnownKey(rows[0]["id"], rows[0]["fingerprint"]) if rows else None


async def get(db: Connection, org: str, batch: UUID) -> BatchView | None:
    """A batch with all its runs."""
    rows = await db.fetch(sql("batches/get"), org, batch)
    return _view(rows) if rows else None


async def get_of_run(db: Connection, org: str, run: UUID) -> BatchView | None:
    """The batch of a run, with all its runs."""
    rows = await db.fetch(sql("batches/get_of_run"), org, run)
    return _view(rows) if rows else None


async def list_page(
    db: Connection, org: str, *, owner: str | None, after: UUID | None, limit: int
) -> list[BatchView]:
    """Batches, newest first, older than ``after``, each with its current run."""
    rows = await db.fetch(sql("batches/list"), org, owner, after or newest_possible(), limit)
    return [
        replace(_view([row[:-_EARLIER_COLUMNS]]), earlier=TaskCounts(*row[-_EARLIER_COLUMNS:]))
        for row in rows
    ]


async def add_part(
    db: Connection,
    org: str,
    batch: UUID,
    part: NewPart,
    tasks: Sequence[NewTask] | None,
    lines: int,
    ingest: StoredIngest | None,
) -> Inserted | None:
    """Add a part to an open batch. None if there is no such batch; raises BatchNotOpen."""

    async def insert(connection: RawConnection) -> Inserted | None:
        async with connection.transaction():
            locked = await _lock(connection, org, batch)
            if locked is None:
                return None
            known = await _known_part(connection, org, batch, part)
            if known is not None:
                return known
            if locked["closed_at"] is not None:
                raise BatchNotOpen(
                    "The batch is closed: it accepts no more tasks."
                    if locked["is_open"]
                    else "The batch was not created as an open one (`type: open`)."
                )
            if locked["tasks"] + len(tasks or ()) > RUN_TASKS_MAX:
                raise BatchNotOpen(f"A run has at most {RUN_TASKS_MAX} tasks.")
            await _add_part(connection, org, locked, locked["run_id"], part, tasks, lines)
            if part.upload is not None:
                await _use_upload(connection, org, part.upload, locked["owner"], batch)
            if ingest is not None:
                await _submit_ingest(connection, org, ingest)
            crash_point("batch.inserted_not_committed")
            return Inserted(part.uuid, True, part.fingerprint)

    return await db.run(insert)


async def close(db: Connection, org: str, batch: UUID) -> bool:
    """Close a batch, so that it accepts no more tasks. Returns whether the batch exists."""

    async def change(connection: RawConnection) -> bool:
        async with connection.transaction():
            locked = await _lock(connection, org, batch)
            if locked is None:
                return False
            await connection.execute(sql("batches/close"), org, locked["run_id"])
            await batch_ingest.latch(connection, org, locked["run_id"])
            return True

    return await db.run(change)


async def cancel(db: Connection, org: str, batch: UUID) -> bool:
    """Cancel a batch's run. Returns whether the batch exists; raises BatchAlreadyEnded."""

    async def change(connection: RawConnection) -> bool:
        async with connection.transaction():
            locked = await _lock(connection, org, batch)
            if locked is None:
                return False
            if locked["completed_at"] is not None:
                raise BatchAlreadyEnded("The batch has ended.")
            await _stop(connection, org, locked["run_id"])
            crash_point("batch.cancel_not_committed")
            return True

    return await db.run(change)


async def delete(db: Connection, org: str, batch: UUID) -> bool:
    """Mark a batch as deleted, for maintenance to remove. Returns whether the batch existed."""

    async def change(connection: RawConnection) -> bool:
        async with connection.transaction():
            locked = await _lock(connection, org, batch)
            if locked is None:
                return False
            await connection.execute(sql("batches/delete"), org, batch)
            if locked["completed_at"] is None:
                await _stop(connection, org, locked["run_id"])
            return True

    return await db.run(change)


async def rerun(
    db: Connection,
    org: str,
    batch: UUID,
    run: UUID,
    part: NewPart,
    selection: Selection,
    ingest: StoredIngest,
    ingest_of: Callable[[UUID], StoredIngest],
    source: RerunSource = DEFAULT_SOURCE,
) -> Inserted | None:
    """Create a new run of a batch, with the tasks of ``source`` that ``selection`` chooses. None if
    there is no such batch.

    Raises BatchStillRuns, NothingToRerun and TooManyRuns. Lists whose ingest failed move to the new
    run, each with a job from ``ingest_of``; the old run ends as cancelled.
    """
    has_selection = bool(selection.statuses or selection.error_codes)
    of_all = source.all_runs or (source.run is None and not has_selection)

    async def insert(connection: RawConnection) -> Inserted | None:
        async with connection.transaction():
            locked = await _lock(connection, org, batch)
            if locked is None:
                return None
            known = await _known_part(connection, org, batch, part)
            if known is not None:
                return Inserted(run, True, part.fingerprint) if known.created else known
            (left,) = await connection.fetch(sql("batches/parts_left"), org, locked["run_id"])
            stuck = (
                locked["closed_at"] is not None
                and locked["cancel_requested_at"] is None
                and left["failed"]
            )
            if locked["completed_at"] is None and not stuck:
                raise BatchStillRuns("The batch's run has not ended; rerun it afterwards.")
            if left["waiting"]:  # the rest of the list would be in no run
                raise BatchStillRuns("A list of the batch is still being ingested.")
            if locked["number"] >= RUNS_MAX:
                raise TooManyRuns(
                    f"A batch has at most {RUNS_MAX:,} runs; submit the tasks as a new job."
                )
            number = locked["number"] + 1
            parent = source.run or locked["run_id"]
            runs = await positions.earlier_runs(connection, org, batch, number)
            if has_selection:
                if stuck:
                    await _check_ended(connection, org, locked["run_id"])
                if of_all:
                    await _check_latest_selected(connection, org, batch, runs, selection)
                else:
                    await _check_selected(connection, org, parent, selection)
            elif not stuck and not _tasks_of(runs, None if of_all else parent):
                raise NothingToRerun("There are no tasks to rerun.")
            await connection.execute(
                sql("batches/rerun"),
                org,
                batch,
                run,
                number,
                parent,
                _selection_json(selection),
                of_all,
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
            await _add_part(connection, org, locked, run, part, None, 0, source_before=before)
            await _submit_ingest(connection, org, ingest)
            if stuck:
                repeats_old_run = not of_all and parent == locked["run_id"]
                moved = await connection.fetch(
                    sql("batches/move_failed_parts"), org, locked["run_id"], run, repeats_old_run
                )
                for row in moved:
                    await _submit_ingest(connection, org, ingest_of(row["id"]))
                await _stop(connection, org, locked["run_id"])
            crash_point("rerun.inserted_not_committed")
            return Inserted(run, True, part.fingerprint)

    return await db.run(insert)


async def complete(db: Connection, runs_max: int) -> list[CompletedRun]:
    """Complete the runs whose tasks have all ended."""
    rows = await fetch_or_die(
        db, "batch.completed_not_committed", sql("batches/complete"), runs_max
    )
    return [CompletedRun(*row) for row in rows]


async def notify_successes(db: Connection, seconds: float) -> bool:
    """Write webhook deliveries for tasks that succeeded, at most one per run in ``seconds``.

    Returns whether some runs have to wait for their next delivery.
    """
    rows = await db.fetch(sql("batches/notify_successes"), seconds)
    is_early: bool = rows[0]["is_early"]
    return is_early


async def _lock(connection: RawConnection, org: str, batch: UUID) -> asyncpg.Record | None:
    await connection.execute(sql("batches/lock"), org, batch)
    rows = await connection.fetch(sql("batches/lock_run"), org, batch)
    return rows[0] if rows else None


async def _known_part(
    connection: RawConnection, org: str, batch: UUID, part: NewPart
) -> Inserted | None:
    rows = await connection.fetch(
        sql("batches/find_part"), org, batch, part.idempotency_key, part.uuid
    )
    if not rows:
        return None
    found = rows[0]["id"]
    return Inserted(found, found == part.uuid, rows[0]["fingerprint"])


async def _stop(connection: RawConnection, org: str, run: UUID) -> None:
    """Stop the claims of a run's tasks; maintenance cancels those that wait."""
    await connection.execute(sql("batches/cancel"), org, run)
    await limits.stop_run(connection, org, run)


async def _check_ended(connection: RawConnection, org: str, run: UUID) -> None:
    """Raise BatchStillRuns if tasks of the run have not ended. The rerun would end the run, and its
    selection, which goes by how tasks ended, would miss them."""
    rows = await connection.fetch(sql("batches/tasks_left"), org, run)
    if rows[0]["some"]:
        raise BatchStillRuns(
            "Tasks of the batch have not ended: rerun all of them, or use the filter later."
        )


async def _check_selected(
    connection: RawConnection, org: str, run: UUID, selection: Selection
) -> None:
    statuses = [each for each in selection.statuses or _STATES if each in _STATES]
    rows = await connection.fetch(
        sql("batches/has_selected"),
        org,
        run,
        [_STATES[status] for status in statuses],
        list(selection.error_codes) or None,
    )
    if not rows[0][0]:
        raise NothingToRerun("No task of the run matches the filter.")


async def _check_latest_selected(
    connection: RawConnection,
    org: str,
    batch: UUID,
    runs: Sequence[EarlierRun],
    selection: Selection,
) -> None:
    statuses = [each for each in selection.statuses or _STATES if each in _STATES]
    before = runs[-1].number + 1
    mirrors = [MirrorRun(run.number, run.uuid, run.mirrored, run.tasks) for run in runs]
    for run in reversed(runs):
        rows = await connection.fetch(
            sql("batches/has_latest"),
            org,
            batch,
            run.uuid,
            run.number,
            mirrored_after(mirrors, run.number),
            before,
            [_STATES[status] for status in statuses],
            list(selection.error_codes) or None,
        )
        if rows[0][0]:
            return
    raise NothingToRerun("No task's latest result matches the filter.")


def _tasks_of(runs: Sequence[EarlierRun], only: UUID | None) -> int:
    return sum(run.tasks for run in runs if only is None or run.uuid == only)


def _selection_json(selection: Selection) -> str | None:
    if not selection.statuses and not selection.error_codes:
        return None
    return encode(
        {"status": list(selection.statuses), "error_code": list(selection.error_codes)}
    ).decode()


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


async def _submit_ingest(connection: RawConnection, org: str, ingest: StoredIngest) -> None:
    await connection.fetch(core_sql("jobs/submit"), *columns([ingest.job]))
    await connection.execute(sql("batches/set_ingest_job"), org, ingest.part, ingest.job.uuid)


async def _add_part(
    connection: RawConnection,
    org: str,
    locked: asyncpg.Record,
    run: UUID,
    part: NewPart,
    tasks: Sequence[NewTask] | None,
    lines: int,
    *,
    source_before: int | None = None,
) -> None:
    notifies = locked["webhook_target"] is not None and "task.failed" in locked["webhook_events"]
    first = locked["tasks"] if run == locked["run_id"] else 0
    await connection.fetch(
        sql("batches/add_part"),
        org,
        locked["id"],
        run,
        part.uuid,
        part.source,
        part.source_key,
        part.source_pieces,
        part.source_bytes,
        part.upload,
        part.idempotency_key,
        part.fingerprint,
        tasks is not None,
        lines,
        *_task_columns(run, tasks or (), first),
        NOTIFIES_FAILURES if notifies else None,
        part.source_etag,
        source_before,
    )


def _new_columns(
    new: NewBatch,
    part: NewPart | None,
    tasks: Sequence[NewTask] | None,
    lines: int,
    target: UUID | None,
) -> list[Any]:
    source = part or NewPart(new.uuid, "inline")
    notifies = target is not None and "task.failed" in new.webhook_events
    return [
        new.org,
        new.uuid,
        new.run,
        new.owner,
        new.service,
        new.service_endpoint,
        new.endpoint,
        new.usage_queue_key,
        new.lane,
        new.failures_max,
        new.is_open,
        new.payload_prefix,
        new.payload_suffix,
        new.concurrency,
        new.rate_per_second,
        new.rate_key,
        new.rate_key_per_second,
        target,
        list(new.webhook_events),
        new.metadata,
        new.keep_seconds,
        new.idempotency_key,
        new.fingerprint,
        new.request_id,
        None if part is None else part.uuid,
        source.source,
        source.source_key,
        source.source_pieces,
        source.source_bytes,
        source.upload,
        lines,
        *_task_columns(new.run, tasks or (), 0),
        NOTIFIES_FAILURES if notifies else None,
        tasks is not None,
        source.source_etag,
        new.secrets,
    ]


def _task_columns(run: UUID, tasks: Sequence[NewTask], first: int) -> list[list[Any]]:
    return [
        [UUID(bytes=task_id(run, first + number)) for number in range(len(tasks))],
        [task.payload for task in tasks],
        [task.custom_id for task in tasks],
        [run_queue_key(run, task.key) for task in tasks],
    ]


def _view(rows: Sequence[asyncpg.Record | Sequence[Any]]) -> BatchView:
    runs = [_run(row[_VIEW_COLUMNS:]) for row in rows]
    columns_of_batch = (*rows[0][:_VIEW_COLUMNS], runs)
    return BatchView(*columns_of_batch)


def _run(row: Sequence[Any]) -> RunView:
    run, number, parent, selection, status, *counts = row[:10]
    return RunView(
        run, number, parent, selection, BatchState(status), TaskCounts(*counts), *row[10:]
    )
