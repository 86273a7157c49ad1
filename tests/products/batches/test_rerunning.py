"""Reruns: tasks of a run that are taken into the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from coatcheck.domain.errors import TargetUnreachable
from coatcheck.domain.ids import new_id, to_text
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches import rerun as rerunning
from coatcheck.products.batches.ingest_repository import RepeatedTask
from coatcheck.products.batches.model import (
    BatchState,
    BatchView,
    NewBatch,
    NewPart,
    NewTask,
    NothingToRerun,
    RunFilter,
    TaskPlace,
    TaskStatus,
    task_id,
)
from tests.db.edge_guard import unguarded
from tests.db.rows import recorded
from tests.products.batches.ingest_deployment import ORG, IngestDeployment, new_batch
from tests.products.batches.recount import counters_equal_recounts


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[IngestDeployment]:
    async with IngestDeployment(dsn, tmp_path) as opened:
        yield opened


async def ended_batch(deployment: IngestDeployment, tasks: int, **changes: object) -> NewBatch:
    """A batch whose run has ended: every third task failed, by turns for two reasons."""
    lines = [
        b'{"custom_id":"c%d","input":{"url":"https://h%d.example/"}}\n' % (n, n % 7)
        for n in range(tasks)
    ]
    new, part = await deployment.create(b"".join(lines), **changes)
    await deployment.ingest(part)
    failed = [n for n in range(tasks) if n % 3 == 0]
    await deployment.end_tasks(new.run, [n for n in range(tasks) if n % 3 == 1], "completed", None)
    await deployment.end_tasks(new.run, [n for n in range(tasks) if n % 3 == 2], "cancelled", None)
    await deployment.end_tasks(new.run, failed[::2], "failed", "http_500")
    await deployment.end_tasks(new.run, failed[1::2], "failed", "timeout")
    await end_run(deployment, new.run)
    return new


async def rerun(
    deployment: IngestDeployment, new: NewBatch, selection: RunFilter
) -> tuple[BatchView, UUID]:
    await deployment.batches.rerun(to_text(new.uuid), selection, org=ORG)
    view = await deployment.view(new)
    part = await deployment.sql.fetchval(
        "SELECT id FROM batch_parts WHERE run_id = $1", view.current.uuid
    )
    await deployment.ingest(part)
    return await deployment.view(new), part


def wanted(*numbers: int) -> list[str]:
    return [f"c{number}" for number in numbers]


@pytest.mark.parametrize("chunk", [3, 4, 5_000])
async def test_all_tasks_are_taken_over_with_their_payloads_and_names(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(rerunning, "CHUNK_TASKS", chunk)
    new = await ended_batch(deployment, 12)
    view, part = await rerun(deployment, new, RunFilter())

    run = view.current
    before, after = await deployment.tasks(new.run), await deployment.tasks(run.uuid)
    assert [task["id"].bytes for task in after] == [task_id(run.uuid, at) for at in range(12)]
    for column in ("task_index", "custom_id", "payload", "endpoint", "lane", "owner"):
        assert [task[column] for task in after] == [task[column] for task in before]
    assert {task["state"] for task in after} == {"queued"}
    assert {task["flow"] for task in after} == {run.uuid.hex}
    assert (run.parent, run.number, run.counts.total) == (new.run, 2, 12)
    row = await deployment.run_row(run.uuid)
    assert (row["total"], row["tasks"]) == (12, 12)
    assert (await deployment.part_row(part))["state"] == "done"


@pytest.mark.parametrize("chunk", [1, 2, 5_000])
@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (RunFilter([TaskStatus.FAILED]), wanted(0, 3, 6, 9)),
        (RunFilter([TaskStatus.FAILED], ["timeout"]), wanted(3, 9)),
        (RunFilter([], ["http_500", "timeout"]), wanted(0, 3, 6, 9)),
        (RunFilter([TaskStatus.CANCELLED, TaskStatus.SUCCEEDED]), wanted(1, 4, 7, 10, 2, 5, 8, 11)),
    ],
)
async def test_only_the_tasks_that_were_asked_for_are_taken_over(
    deployment: IngestDeployment,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    selection: RunFilter,
    expected: list[str],
) -> None:
    monkeypatch.setattr(rerunning, "CHUNK_TASKS", chunk)
    new = await ended_batch(deployment, 12)
    view, _ = await rerun(deployment, new, selection)

    tasks = await deployment.tasks(view.current.uuid)
    assert [task["custom_id"] for task in tasks] == expected
    assert [task["task_index"] for task in tasks] == list(range(len(expected)))
    assert (await deployment.run_row(view.current.uuid))["total"] == len(expected)


async def test_a_rerun_keeps_the_keys_that_rates_are_counted_by(
    deployment: IngestDeployment,
) -> None:
    new = await ended_batch(deployment, 3, rate_key="url", rate_key_per_second=5.0)
    view, _ = await rerun(deployment, new, RunFilter())

    run = view.current.uuid.hex
    flows = [task["flow"] for task in await deployment.tasks(view.current.uuid)]
    assert flows == [f"{run}/h0.example", f"{run}/h1.example", f"{run}/h2.example"]


async def test_a_rerun_that_is_taken_in_twice_writes_each_task_once(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = await ended_batch(deployment, 12)
    view, part = await rerun(deployment, new, RunFilter())
    await deployment.ingest(part)

    assert len(await deployment.tasks(view.current.uuid)) == 12


async def test_a_chunk_of_a_rerun_is_written_once(deployment: IngestDeployment) -> None:
    new = await ended_batch(deployment, 6)
    await deployment.batches.rerun(to_text(new.uuid), RunFilter(), org=ORG)
    run = (await deployment.view(new)).current.uuid
    part = await deployment.sql.fetchval("SELECT id FROM batch_parts WHERE run_id = $1", run)
    order = await ingest.read_snapshot(deployment.ingest_connection, ORG, part)
    assert order is not None
    places = [TaskPlace(new.run, number) for number in (0, 1)]
    chunk = [RepeatedTask(place, place.number, place) for place in places]
    await ingest.write_rerun_chunk(deployment.ingest_connection, order, chunk, 2, is_last=False)

    with pytest.raises(ingest.Overtaken):
        await ingest.write_rerun_chunk(deployment.ingest_connection, order, chunk, 2, is_last=False)
    await deployment.ingest(part)

    names = [task["custom_id"] for task in await deployment.tasks(run)]
    assert names == wanted(0, 1, 2, 3, 4, 5)


async def test_a_rerun_of_a_rerun_takes_from_that_one(deployment: IngestDeployment) -> None:
    new = await ended_batch(deployment, 6)
    view, _ = await rerun(deployment, new, RunFilter([TaskStatus.FAILED]))
    first = view.current.uuid
    await deployment.end_tasks(first, [0], "completed", None)
    await deployment.end_tasks(first, [1], "failed", "again")
    await deployment.sql.execute(
        "UPDATE runs SET completed_at = now(), succeeded = 1, failed = 1 WHERE id = $1", first
    )
    again, _ = await rerun(deployment, new, RunFilter([TaskStatus.FAILED]))

    assert [run.number for run in again.runs] == [1, 2, 3]
    assert [task["custom_id"] for task in await deployment.tasks(again.current.uuid)] == wanted(3)


async def test_nothing_of_that_kind_is_no_rerun(deployment: IngestDeployment) -> None:
    new = await ended_batch(deployment, 3)

    with pytest.raises(NothingToRerun):
        await deployment.batches.rerun(to_text(new.uuid), RunFilter([], ["no such code"]), org=ORG)


@pytest.mark.parametrize("selection", [RunFilter(), RunFilter([TaskStatus.FAILED])])
async def test_a_rerun_that_failed_half_way_goes_on_in_the_next_run_where_it_stopped(
    deployment: IngestDeployment, selection: RunFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerunning, "CHUNK_TASKS", 2)
    new = await ended_batch(deployment, 12)
    await deployment.batches.rerun(to_text(new.uuid), selection, org=ORG)
    second = (await deployment.view(new)).current.uuid
    (half,) = await parts_of(deployment, second)
    order = await ingest.read_snapshot(deployment.ingest_connection, ORG, half)
    assert order is not None
    async for _ in rerunning.chunks(deployment.ingest_connection, order):
        break
    await ingest.fail_part(deployment.ingest_connection, ORG, half, "worker_lost", "it fell silent")

    await deployment.batches.rerun(to_text(new.uuid), RunFilter(), org=ORG, source_run=second)
    third = (await deployment.view(new)).current.uuid
    own, moved = await parts_of(deployment, third)
    with pytest.raises(TargetUnreachable, match="the run before it has not ended"):
        await deployment.ingest(own)
    await end_run(deployment, second, cancelled=True)
    await deployment.ingest(own)
    await deployment.ingest(moved)

    names = [row["custom_id"] for row in await deployment.tasks(third)]
    assert names == wanted(*(range(0, 12, 3) if selection.status else range(12)))
    assert (await deployment.view(new)).status is BatchState.RUNNING
    await latest_are(deployment, new, third, 4 if selection.status else 12)


async def test_a_rerun_of_the_whole_batch_does_not_take_along_what_another_left_undone(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerunning, "CHUNK_TASKS", 2)
    new = await ended_batch(deployment, 12)
    await deployment.batches.rerun(to_text(new.uuid), RunFilter([TaskStatus.FAILED]), org=ORG)
    second = (await deployment.view(new)).current.uuid
    (half,) = await parts_of(deployment, second)
    order = await ingest.read_snapshot(deployment.ingest_connection, ORG, half)
    assert order is not None
    async for _ in rerunning.chunks(deployment.ingest_connection, order):
        break
    await ingest.fail_part(deployment.ingest_connection, ORG, half, "worker_lost", "it fell silent")

    await deployment.batches.rerun(to_text(new.uuid), RunFilter(), org=ORG)
    third = (await deployment.view(new)).current.uuid
    (own,) = await parts_of(deployment, third)
    await end_run(deployment, second, cancelled=True)
    await deployment.ingest(own)

    names = [row["custom_id"] for row in await deployment.tasks(third)]
    assert names == wanted(*range(12)), "each task once"
    await latest_are(deployment, new, third, 12)


@pytest.mark.parametrize("chosen", [False, True])
async def test_what_a_later_run_takes_in_first_comes_after_all_there_was(
    deployment: IngestDeployment, chosen: bool
) -> None:
    """A list was lost: the next run takes it in, and its tasks are new to the batch."""
    new = new_batch(is_open=True)
    await deployment.batches.create(
        new, NewPart(new_id(), "inline"), [NewTask(b"%d" % n, f"c{n}") for n in range(4)]
    )
    lost = await deployment.staged(
        new.uuid, b'{"custom_id":"c4","input":4}\n{"custom_id":"c5","input":5}\n'
    )
    await deployment.batches.add(ORG, new.uuid, lost, None)
    await ingest.fail_part(
        deployment.ingest_connection, ORG, lost.uuid, "list_missing", "it is gone"
    )
    await deployment.batches.close(to_text(new.uuid), org=ORG)
    await deployment.end_tasks(new.run, [0, 1], "completed", None)
    await deployment.end_tasks(new.run, [2, 3], "failed", "broke")
    await deployment.sql.execute("UPDATE runs SET succeeded = 2, failed = 2 WHERE id = $1", new.run)

    selection = RunFilter([TaskStatus.FAILED]) if chosen else RunFilter()
    await deployment.batches.rerun(to_text(new.uuid), selection, org=ORG)
    second = (await deployment.view(new)).current.uuid
    await end_run(deployment, new.run, cancelled=True)
    for part in await parts_of(deployment, second):
        await deployment.ingest(part)

    names = [row["custom_id"] for row in await deployment.tasks(second)]
    assert names == (wanted(2, 3, 4, 5) if chosen else wanted(*range(6)))
    await latest_are(deployment, new, second, len(names))
    await deployment.end_tasks(second, list(range(len(names))), "failed", "broke")
    await end_run(deployment, second)
    view, _ = await rerun(deployment, new, RunFilter())
    await latest_are(deployment, new, view.current.uuid, 6)
    assert [row["custom_id"] for row in await deployment.tasks(view.current.uuid)] == wanted(
        *range(6)
    )


async def test_a_rerun_of_all_tasks_needs_no_row_for_each_of_them(
    deployment: IngestDeployment,
) -> None:
    new = await ended_batch(deployment, 12)
    await rerun(deployment, new, RunFilter())
    assert await deployment.sql.fetchval("SELECT count(*) FROM batch_positions") == 0


async def end_run(deployment: IngestDeployment, run: UUID, *, cancelled: bool = False) -> None:
    """Let a run have ended: its tasks that have not are cancelled, and all are counted."""
    async with unguarded(deployment.sql):
        await deployment.sql.execute(
            recorded("""
            UPDATE jobs SET state = 'cancelled', finished_at = now(), expires_at = 'infinity'
            WHERE run_id = $1 AND state NOT IN ('completed', 'failed', 'cancelled')
            """),
            run,
        )
    await deployment.sql.execute(
        """
        UPDATE runs AS r
        SET total = r.tasks, latched_at = now(), completed_at = now(), succeeded = n.completed,
            failed = n.failed, cancelled = n.cancelled,
            cancel_requested_at = CASE WHEN $2 THEN now() END
        FROM (
            SELECT count(*) FILTER (WHERE state = 'completed') AS completed,
                   count(*) FILTER (WHERE state = 'failed') AS failed,
                   count(*) FILTER (WHERE state = 'cancelled') AS cancelled
            FROM jobs WHERE run_id = $1
        ) AS n
        WHERE r.id = $1
        """,
        run,
        cancelled,
    )


async def latest_are(deployment: IngestDeployment, new: NewBatch, run: UUID, tasks: int) -> None:
    """The latest results of so many tasks are a run's, and the counters say what a recount does."""
    await counters_equal_recounts(deployment.dsn, ORG, new.uuid)
    view = await deployment.view(new)
    found, _ = await deployment.batches.tasks.page_of_all_runs(
        view, status=None, after=None, limit=200
    )
    assert [task.run for task in found].count(run) == tasks
    assert [task.position for task in found] == list(range(view.whole.total))


async def parts_of(deployment: IngestDeployment, run: UUID) -> list[UUID]:
    rows = await deployment.sql.fetch(
        "SELECT id FROM batch_parts WHERE run_id = $1 ORDER BY position", run
    )
    return [row["id"] for row in rows]
