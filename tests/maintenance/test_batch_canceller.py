"""A cancelled run ends: nothing more is taken in, what waits is cancelled, what runs is asked to
stop, and its counters stay right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CANCEL, NotificationListener, Notifier
from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.maintenance.usage import UsageRollup
from coatcheck.products.batches import maintenance
from coatcheck.products.batches.maintenance import BatchCanceller, RunCompleter
from coatcheck.products.batches.model import BatchState
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.repository import BatchRepository
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.long_runs import LongRun, put_long_run
from tests.db.plans import explain_query
from tests.db.rows import ORG, connected, put_queue
from tests.products.batches.recount import counters_equal_recounts
from tests.waiting import eventually_async

WAITING = [State.QUEUED, State.RETRYING, State.STAGED]


@pytest.fixture
async def notifier(dsn: str) -> AsyncIterator[Notifier]:
    opened = Connection(dsn, name="test notify")
    notifier = Notifier(opened)
    yield notifier
    await notifier.drain()
    await opened.close()


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


async def cancel(batches: BatchRepository, made: LongRun) -> None:
    await batches.cancel(to_text(made.batch), org=made.org)


async def tick_to_the_end(canceller: BatchCanceller) -> int:
    """Tick until there is nothing more to do at once. How often."""
    ticks = 1
    while await canceller.tick() == 0.0:
        ticks += 1
    return ticks


async def complete(line: Connection, notifier: Notifier) -> None:
    """What sums up and completes runs."""
    await UsageRollup(line, notifier).tick()
    await RunCompleter(line, notifier).tick()


@pytest.mark.parametrize("keys", [(), ("a", "b/c")])
async def test_waiting_tasks_end_in_small_steps_and_the_run_completes_as_cancelled(
    batches: BatchRepository,
    dsn: str,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str, ...],
) -> None:
    monkeypatch.setattr(maintenance, "TASKS_MAX", 100)
    made = await put_long_run(connection, WAITING * 200 + [State.COMPLETED] * 5, keys=keys)
    other = await put_long_run(connection, WAITING * 5, keys=keys)
    await cancel(batches, made)
    assert await tick_to_the_end(BatchCanceller(line, notifier)) >= 4
    view = await counters_equal_recounts(dsn, ORG, made.batch)
    assert (view.current.counts.cancelled, view.current.counts.pending) == (600, 0)
    assert view.status is BatchState.RUNNING
    await complete(line, notifier)
    view = await counters_equal_recounts(dsn, ORG, made.batch)
    assert view.status is BatchState.CANCELLED
    assert (await counters_equal_recounts(dsn, ORG, other.batch)).current.counts.pending == 15
    row = await connection.fetchrow("SELECT * FROM jobs WHERE id = $1", made.task(0))
    assert row is not None
    assert (row["error_code"], row["payload"]) == ("cancelled", b'{"n":0}')


async def test_running_tasks_are_asked_to_stop_through_their_holder(
    batches: BatchRepository,
    dsn: str,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    worker: Claimer,
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 3)
    held = await worker.claim(2)
    heard: list[str] = []
    listener = NotificationListener(dsn).subscribe({CANCEL: heard.append}, on_gap=lambda: None)
    await listener.start()
    await cancel(batches, made)
    canceller = BatchCanceller(line, notifier)
    await tick_to_the_end(canceller)

    async def told() -> bool:
        words = {word for said in heard for word in said.split(",")}
        return words == {f"{worker.boot}:{job.uuid.hex}" for job in held}

    await eventually_async(told, "the holder is told of both")
    await listener.stop()
    view = await counters_equal_recounts(dsn, ORG, made.batch)
    assert (view.current.counts.running, view.current.counts.cancelled) == (2, 1)
    await complete(line, notifier)
    assert (await made.view(line)).status is BatchState.RUNNING, "two still run"

    assert await worker.settle(held[0], TransitionEvent.ACKNOWLEDGE_CANCEL) is State.CANCELLED
    assert await worker.complete(held[1]) == 1
    await tick_to_the_end(canceller)
    await complete(line, notifier)
    view = await counters_equal_recounts(dsn, ORG, made.batch)
    assert view.status is BatchState.CANCELLED
    assert (view.current.counts.succeeded, view.current.counts.cancelled) == (1, 2)


async def test_what_a_claim_held_at_one_look_is_found_at_the_next(
    batches: BatchRepository,
    dsn: str,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 3)
    await cancel(batches, made)
    canceller = BatchCanceller(line, notifier)
    async with connected(dsn) as rival, rival.transaction():
        await rival.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", made.task(1))
        await canceller.tick()
    view = await made.view(line)
    assert (view.current.counts.cancelled, view.current.counts.pending) == (2, 1)
    await canceller.tick()
    assert (await made.view(line)).current.counts.cancelled == 3


@pytest.mark.parametrize("part_state", ["pending", "failed"])
async def test_a_run_that_was_being_taken_in_is_latched_with_what_was_written(
    batches: BatchRepository,
    dsn: str,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    part_state: str,
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 4, latched=False, part_state=part_state)
    await cancel(batches, made)
    canceller = BatchCanceller(line, notifier)
    await tick_to_the_end(canceller)
    await tick_to_the_end(canceller)
    row = await connection.fetchrow("SELECT * FROM runs WHERE id = $1", made.run)
    assert row is not None
    assert (row["total"], row["tasks"]) == (4, 4)
    assert row["closed_at"] is not None
    states = await connection.fetch("SELECT state FROM batch_parts WHERE run_id = $1", made.run)
    assert [state["state"] for state in states] == ["done"]
    await complete(line, notifier)
    assert (await counters_equal_recounts(dsn, ORG, made.batch)).status is BatchState.CANCELLED


async def test_a_chunk_that_is_being_written_is_waited_for_and_counted(
    batches: BatchRepository, dsn: str, connection: AsyncpgConnection, line: Connection
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 4, latched=False, part_state="pending")
    await cancel(batches, made)
    async with connected(dsn) as writer:
        writing = writer.transaction()
        await writing.start()
        await writer.execute("UPDATE runs SET tasks = 9 WHERE id = $1", made.run)
        ending = asyncio.create_task(sql.fetch(line, "removal/end_ingest", org=ORG, run=made.run))
        await eventually_async(
            lambda: connection.fetchval(
                "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database() AND application_name = 'coatcheck test'"
            ),
            "the canceller waits",
        )
        await writing.commit()
        await ending
    row = await connection.fetchrow("SELECT * FROM runs WHERE id = $1", made.run)
    assert row is not None
    assert (row["total"], row["tasks"]) == (9, 9)


async def test_runs_that_were_not_cancelled_are_left_alone(
    connection: AsyncpgConnection, line: Connection, notifier: Notifier
) -> None:
    made = await put_long_run(connection, [*WAITING, State.PROCESSING], latched=False)
    await tick_to_the_end(BatchCanceller(line, notifier))
    view = await made.view(line)
    assert (view.current.counts.pending, view.current.counts.running) == (3, 1)
    assert view.status is BatchState.OPEN
    assert await connection.fetchval("SELECT count(*) FROM runs WHERE total IS NULL") == 1


async def test_more_cancelled_runs_than_one_look_takes_are_all_ended(
    batches: BatchRepository,
    connection: AsyncpgConnection,
    line: Connection,
    notifier: Notifier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "CANCEL_RUNS_MAX", 2)
    made = [await put_long_run(connection, WAITING) for _ in range(5)]
    for each in made:
        await cancel(batches, each)
    await tick_to_the_end(BatchCanceller(line, notifier))
    for each in made:
        assert (await each.view(line)).current.counts.cancelled == 3


async def test_a_step_reads_its_own_tasks_only(
    connection: AsyncpgConnection, line: Connection
) -> None:
    await put_queue(connection, 5_000)
    await put_long_run(connection, [State.QUEUED] * 5_000)
    made = await put_long_run(connection, WAITING * 2_000, keys=("a", "b"))
    await connection.execute("VACUUM ANALYZE jobs")
    chunk = 100
    plan = await line.run(
        lambda it: explain_query(
            it, sql, "removal/cancel_waiting", org=ORG, run=made.run, rows_max=chunk
        )
    )
    assert plan.indexes("jobs", "queue") == {"queue_order", "queue_pkey", "jobs_pkey"}
    assert "postponed_of_run" in plan.indexes("postponed")
    assert plan.rows_read("postponed") <= 2 * chunk
    assert sum(map(plan.sequential_scans, ("jobs", "queue", "postponed"))) == 0
    assert plan.rows_read("jobs") <= 5 * chunk
    plan = await line.run(
        lambda it: explain_query(
            it, sql, "removal/request_cancel", org=ORG, run=made.run, rows_max=chunk
        )
    )
    assert plan.rows_read("jobs") == 0
    assert plan.sequential_scans("jobs") == 0
