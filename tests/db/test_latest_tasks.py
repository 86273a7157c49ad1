"""The latest tasks of a batch over all runs: read by index, at the cost of what is looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.listing import PageQuery
from coatcheck.domain.states import State
from coatcheck.products.batches.model import RunPlace, TaskStatus, TaskView
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.task_repository import TaskRepository
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.long_runs import LongRun, put_long_run
from tests.db.plans import Plan, explain_query
from tests.db.rows import ORG

MANY = 40_000
RERUN = 4_000
LIMIT = 50
EVERY = MANY // RERUN
"""Each so many-th task was run again: all of those failed at first."""


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="batches", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


async def put_rerun(
    connection: AsyncpgConnection, first: LongRun, states: Sequence[State], positions: Sequence[int]
) -> UUID:
    """A second run of a batch, which has run tasks of these positions again."""
    second = await put_long_run(connection, states)
    await connection.execute("DELETE FROM batches WHERE id = $1", second.batch)
    await connection.execute(
        """
        UPDATE runs SET group_id = $2, number = 2, parent_run = $3 WHERE id = $1
        """,
        second.run,
        first.batch,
        first.run,
    )
    await connection.execute(
        "UPDATE batches SET current_run = $2 WHERE id = $1", first.batch, second.run
    )
    await connection.execute(
        "UPDATE runs SET replaced_failed = $2 WHERE id = $1", first.run, len(positions)
    )
    await connection.execute(
        """
        INSERT INTO batch_positions
        SELECT $1, $2, t.position, 2, $3, t.number - 1
        FROM unnest($4::integer[]) WITH ORDINALITY AS t (position, number)
        """,
        ORG,
        first.batch,
        second.run,
        list(positions),
    )
    return second.run


@pytest.fixture
async def rerun(connection: AsyncpgConnection) -> tuple[LongRun, UUID]:
    """A long run of which every tenth task failed, and was run again; and as many others."""
    other = await put_long_run(connection, [State.FAILED] * RERUN)
    await put_rerun(connection, other, [State.FAILED] * RERUN, range(RERUN))
    states = [State.FAILED if n % EVERY == 0 else State.COMPLETED for n in range(MANY)]
    first = await put_long_run(connection, states)
    again = [State.FAILED if n % 8 == 0 else State.COMPLETED for n in range(RERUN)]
    second = await put_rerun(connection, first, again, range(0, MANY, EVERY))
    await connection.execute("VACUUM ANALYZE jobs, batch_positions, runs")
    return first, second


async def explained(line: Connection, name: str, **arguments: Any) -> Plan:
    return await line.run(lambda it: explain_query(it, sql, name, **arguments))


async def test_what_is_latest_is_told_by_index_wherever_one_looks(
    line: Connection, rerun: tuple[LongRun, UUID]
) -> None:
    first, second = rerun
    middle = MANY // 2
    place = RunPlace(first.batch, first.run, 1, 0, 3)
    ended = await explained(
        line,
        "tasks/latest_ended",
        org=ORG,
        **place._asdict(),
        state="failed",
        error_codes=None,
        after=middle,
        limit=LIMIT,
    )
    assert ended.rows_read("jobs") == 0
    assert ended.indexes("ended_tasks") == {"ended_tasks_pkey"}
    assert ended.rows_read("ended_tasks") <= (LIMIT + 2 * 64) / (64 // EVERY) + 1
    assert ended.indexes("batch_positions") == {"batch_positions_pkey", "batch_positions_task"}
    assert ended.rows_read("batch_positions") <= LIMIT * 2
    assert ended.buffers < LIMIT * 12

    positions = list(range(middle, middle + LIMIT))
    latest = await explained(
        line,
        "tasks/latest_of_positions",
        org=ORG,
        batch=first.batch,
        positions=positions,
        before=3,
    )
    assert latest.indexes("batch_positions") == {"batch_positions_pkey"}
    assert latest.rows_read("batch_positions") <= LIMIT
    assert latest.buffers < LIMIT * 6

    of_tasks = await explained(
        line, "tasks/positions_of", org=ORG, run=second, numbers=positions[:10]
    )
    assert of_tasks.indexes("batch_positions") == {"batch_positions_task"}
    numbers = list(range(0, LIMIT * EVERY, EVERY))
    exported = await explained(
        line,
        "exports/ended_by_ids",
        org=ORG,
        run=first.run,
        state="failed",
        ids=[first.task(number) for number in numbers],
        bytes_max=1_000_000,
    )
    assert exported.indexes("jobs") == {"jobs_pkey"}
    assert exported.rows_read("jobs") <= LIMIT


async def test_counts_over_all_runs_read_no_task(
    line: Connection, rerun: tuple[LongRun, UUID]
) -> None:
    first, _ = rerun
    for name, arguments in (
        ("batches/get", {"batch": first.batch}),
        ("batches/list", {"owner": "user:ann", "limit": LIMIT} | PageQuery().arguments()),
    ):
        plan = await explained(line, name, org=ORG, **arguments)
        assert plan.rows_read("jobs") == 0, name
        assert plan.rows_read("batch_positions") == 0, name
        assert plan.buffers < 200, name


async def test_a_run_whose_tasks_were_all_run_again_is_not_walked(
    line: Connection, rerun: tuple[LongRun, UUID]
) -> None:
    """All that failed at first was run again: a page of failures begins with the second run, and is
    done when that is."""
    first, second = rerun
    view = await first.view(line)
    tasks = TaskRepository(line)
    cursor: str | None = None
    found: list[TaskView] = []
    pages = 0
    while pages == 0 or cursor is not None:
        page, cursor = await tasks.page_of_all_runs(
            view, status=TaskStatus.FAILED, after=cursor, limit=200
        )
        found += page
        pages += 1
    assert pages == 3
    assert {task.run for task in found} == {second}
    assert len(found) == view.whole.failed == RERUN // 8
    assert view.whole.total == MANY


async def test_tasks_of_one_position_come_once_in_order(
    connection: AsyncpgConnection, line: Connection
) -> None:
    made = await put_long_run(connection, [State.FAILED] * 6)
    second = await put_rerun(connection, made, [State.COMPLETED] * 2, [1, 4])
    view = await made.view(line)
    found, following = await TaskRepository(line).page_of_all_runs(
        view, status=None, after=None, limit=10
    )
    assert following is None
    assert [(task.position, task.index, task.run == second) for task in found] == [
        (0, 0, False),
        (1, 0, True),
        (2, 2, False),
        (3, 3, False),
        (4, 1, True),
        (5, 5, False),
    ]


async def test_a_rerun_that_mirrors_takes_the_place_of_rows_before_it(
    connection: AsyncpgConnection, line: Connection
) -> None:
    """The third run has begun to take all tasks in again: what it has so far is the latest."""
    made = await put_long_run(connection, [State.FAILED] * 6)
    second = await put_rerun(connection, made, [State.COMPLETED] * 2, [1, 4])
    third = await put_long_run(connection, [State.COMPLETED] * 3)
    await connection.execute("DELETE FROM batches WHERE id = $1", third.batch)
    await connection.execute(
        "UPDATE runs SET group_id = $2, number = 3, mirrored = 3 WHERE id = $1",
        third.run,
        made.batch,
    )
    await connection.execute(
        "UPDATE batches SET current_run = $2 WHERE id = $1", made.batch, third.run
    )
    await connection.execute(
        "UPDATE runs SET replaced_failed = 4 WHERE id = $1", made.run
    )  # two by the second run, 0 and 2 by the third
    await connection.execute("UPDATE runs SET replaced_succeeded = 1 WHERE id = $1", second)
    view = await made.view(line)
    tasks = TaskRepository(line)
    found, _ = await tasks.page_of_all_runs(view, status=None, after=None, limit=10)
    runs = [task.run for task in found]
    assert runs == [third.run, third.run, third.run, made.run, second, made.run]
    failed, _ = await tasks.page_of_all_runs(view, status=TaskStatus.FAILED, after=None, limit=10)
    assert [task.position for task in failed] == [3, 5]
    succeeded, _ = await tasks.page_of_all_runs(
        view, status=TaskStatus.SUCCEEDED, after=None, limit=10
    )
    assert [task.position for task in succeeded] == [0, 1, 2, 4]
    whole = view.whole
    assert (whole.total, whole.succeeded, whole.failed) == (6, 4, 2)


async def test_positions_go_with_their_tasks(
    connection: AsyncpgConnection, line: Connection
) -> None:
    made = await put_long_run(connection, [State.FAILED] * 3)
    second = await put_rerun(connection, made, [State.COMPLETED] * 3, [0, 1, 2])
    async with unguarded(connection):
        await sql.fetch(
            line,
            "removal/delete_tasks",
            org=ORG,
            run=second,
            ids=[new_id()],
            tasks_before=3,
            tasks_after=1,
        )
    left = await connection.fetch("SELECT task_index FROM batch_positions")
    assert [row["task_index"] for row in left] == [0]
