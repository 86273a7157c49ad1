"""Pages of tasks: complete, in order, by status, and at the cost of what they show."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import UUID

import pytest

from coatcheck.core.queries import jobs
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.errors import InvalidParameter, InvalidSubmission, JobNotFound
from coatcheck.domain.ids import new_id, run_queue_key
from coatcheck.domain.limits import PAGE_RESULTS_BYTES_MAX, RESULT_INLINE_BYTES_MAX
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.products.batches.model import END_STATES, TaskStatus, TaskView
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.task_repository import TaskRepository
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.long_runs import LongRun, put_long_run
from tests.db.plans import Plan, explain_query
from tests.db.rows import ORG, recorded, write_claims

MANY = 40_000
LIMIT = 50
MIXED = [
    State.COMPLETED,
    State.QUEUED,
    State.FAILED,
    State.RETRYING,
    State.PROCESSING,
    State.CANCELLED,
    State.STAGED,
]


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="batches", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture
def tasks(line: Connection) -> TaskRepository:
    return TaskRepository(line)


async def all_pages(
    line: Connection,
    tasks: TaskRepository,
    made: LongRun,
    status: TaskStatus | None,
    limit: int = 7,
) -> list[TaskView]:
    """Every task of a list, read to its end; each page but the last is full."""
    view = await made.view(line)
    found: list[TaskView] = []
    cursor = None
    while True:
        page, cursor = await tasks.page(
            view, view.current, status=status, after=cursor, limit=limit
        )
        found += page
        if cursor is None:
            return found
        assert len(page) == limit


async def test_without_a_status_every_task_comes_once_by_number(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    made = await put_long_run(connection, MIXED * 6)
    found = await all_pages(line, tasks, made, None)
    assert [task.index for task in found] == list(range(42))
    assert [task.state for task in found] == MIXED * 6
    assert [task.uuid for task in found] == [made.task(index) for index in range(42)]
    assert {task.run for task in found} == {made.run}
    assert found[3].custom_id == "task 3"


@pytest.mark.parametrize("keys", [(), ("a.example", "b.example", "c/d")])
@pytest.mark.parametrize("status", list(TaskStatus))
async def test_each_status_has_its_tasks_once(
    connection: AsyncpgConnection,
    line: Connection,
    tasks: TaskRepository,
    status: TaskStatus,
    keys: tuple[str, ...],
) -> None:
    await put_long_run(connection, MIXED * 3)  # of another batch
    made = await put_long_run(connection, MIXED * 8, keys=keys)
    found = await all_pages(line, tasks, made, status)
    everything = await all_pages(line, tasks, made, None)
    assert sorted(task.index for task in found) == [
        task.index for task in everything if task.status is status
    ]
    if status is not TaskStatus.PENDING:
        assert found == sorted(found, key=lambda task: task.index)


async def end_alone(connection: AsyncpgConnection, made: LongRun, index: int, state: State) -> None:
    """Let a task have ended, by a statement of its own."""
    async with unguarded(connection):
        await connection.execute(
            recorded("""
            UPDATE jobs
            SET state = $2::text::job_state, finished_at = now(), expires_at = 'infinity'
            WHERE id = $1
            """),
            made.task(index),
            state.value,
        )


@pytest.mark.parametrize("status", [TaskStatus.SUCCEEDED, TaskStatus.FAILED])
async def test_tasks_that_ended_one_by_one_in_any_order_come_once_by_number(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository, status: TaskStatus
) -> None:
    chance = Random(7)
    made = await put_long_run(connection, [State.QUEUED] * 400)
    ended = chance.sample(range(400), 250)
    states = {index: chance.choice((State.COMPLETED, State.FAILED)) for index in ended}
    for index, state in states.items():
        await end_alone(connection, made, index, state)
    for limit in (1, 7, 64, 200):
        found = await all_pages(line, tasks, made, status, limit=limit)
        assert [task.index for task in found] == sorted(
            index for index, state in states.items() if state is END_STATES[status]
        ), limit
        assert [task.uuid for task in found] == [made.task(task.index) for task in found]
    first = min(states)
    every = {"org": ORG, "run": made.run, "state": states[first].value, "result_bytes_max": 1}
    plan = await line.run(
        lambda it: explain_query(it, sql, "tasks/ended", **every, after=first + 70, limit=3)
    )
    assert plan.rows_read("ended_tasks") <= 3 + 2 * 64
    assert plan.rows_read("jobs") == 3


async def test_a_page_of_waiting_tasks_that_ends_with_the_queue_is_gone_on_with(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 7 + [State.RETRYING] * 8)
    found = await all_pages(line, tasks, made, TaskStatus.PENDING, limit=7)
    assert sorted(task.index for task in found) == list(range(15))


async def test_what_is_said_of_attempts_and_errors(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    made = await put_long_run(connection, MIXED)
    view = await made.view(line)
    page, _ = await tasks.page(view, view.current, status=None, after=None, limit=10)
    by_state = {task.state: task for task in page}
    assert by_state[State.COMPLETED].attempts == 1
    assert by_state[State.COMPLETED].result == b'{"ok":true}'
    assert by_state[State.PROCESSING].attempts == 1
    assert by_state[State.FAILED].attempts == 4
    assert (by_state[State.FAILED].error_code, by_state[State.FAILED].error_message) == (
        "broke",
        "it broke",
    )
    assert by_state[State.QUEUED].attempts == 0


async def test_a_long_result_is_left_out_of_a_page_and_of_its_task_and_read_by_itself(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    long, short = b'"%b"' % (b"x" * RESULT_INLINE_BYTES_MAX), b"y" * RESULT_INLINE_BYTES_MAX
    made = await put_long_run(connection, [State.COMPLETED], result=long)
    other = await put_long_run(connection, [State.COMPLETED], result=short)
    for status in (None, TaskStatus.SUCCEEDED):
        view = await made.view(line)
        ((task,), _) = await tasks.page(view, view.current, status=status, after=None, limit=10)
        assert (task.result, task.result_bytes) == (None, len(long))
        view = await other.view(line)
        ((task,), _) = await tasks.page(view, view.current, status=status, after=None, limit=10)
        assert (task.result, task.result_bytes) == (short, len(short))
    whole = await tasks.get(await made.view(line), made.task(0).hex)
    assert whole.result_is_left_out
    assert await jobs.result(line, ORG, whole.uuid) == long
    assert whole.input == b'{"n":0}'
    assert whole.run == made.run


async def test_a_task_of_another_batch_or_organisation_is_as_absent_as_one_that_never_was(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    mine = await put_long_run(connection, MIXED)
    sibling = await put_long_run(connection, MIXED)
    theirs = await put_long_run(connection, MIXED, org="globex")
    view = await mine.view(line)
    assert (await tasks.get(view, mine.task(2).hex)).index == 2
    assert (await tasks.get(view, mine.task(2).hex.upper())).index == 2
    told = set()
    for absent in (
        sibling.task(2).hex,
        theirs.task(2).hex,
        new_id().hex,
        mine.task(7).hex,
        str(mine.task(2)),
        "",
        "zz" * 16,
        "²" * 32,
        "0x" + mine.task(2).hex[2:],
        "{" + mine.task(2).hex[1:-1] + "}",
    ):
        with pytest.raises(JobNotFound) as refused:
            await tasks.get(view, absent)
        told.add(str(refused.value))
    assert len(told) == 1


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "bm90IGpzb24",
        "WyJuIl0",
        "WyJuIiwtMl0",
        "WyJuIiw5OTk5OTk5OTk5OV0",
        "WyJ6Iiw1XQ",
    ],
)
async def test_a_cursor_that_no_page_gave_is_refused(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository, cursor: str
) -> None:
    made = await put_long_run(connection, MIXED)
    view = await made.view(line)
    for status in (None, *TaskStatus):
        with pytest.raises(InvalidParameter, match="cursor"):
            await tasks.page(view, view.current, status=status, after=cursor, limit=10)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_a_cursor_of_a_moment_that_is_not_in_the_calendar_is_refused(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository, moment: str
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 3)
    view = await made.view(line)
    cursor = base64.urlsafe_b64encode(encode(["q", "a flow", moment, new_id()])).decode()
    with pytest.raises(InvalidParameter, match="cursor"):
        await tasks.page(
            view, view.current, status=TaskStatus.PENDING, after=cursor.rstrip("="), limit=10
        )


async def test_a_cursor_of_the_queue_is_refused_by_the_other_lists(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    made = await put_long_run(connection, [State.QUEUED] * 3)
    view = await made.view(line)
    _, cursor = await tasks.page(view, view.current, status=TaskStatus.PENDING, after=None, limit=1)
    assert cursor is not None
    for status in (None, TaskStatus.SUCCEEDED, TaskStatus.RUNNING):
        with pytest.raises(InvalidParameter, match="cursor"):
            await tasks.page(view, view.current, status=status, after=cursor, limit=10)


@pytest.mark.parametrize("limit", [0, 201])
async def test_a_page_has_a_bound(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository, limit: int
) -> None:
    made = await put_long_run(connection, MIXED)
    view = await made.view(line)
    with pytest.raises(InvalidSubmission, match="limit"):
        await tasks.page(view, view.current, status=None, after=None, limit=limit)


async def test_a_run_without_tasks_has_an_empty_page(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    made = await put_long_run(connection, [], latched=False)
    for status in (None, *TaskStatus):
        assert await all_pages(line, tasks, made, status) == []


@pytest.fixture
async def long_run(connection: AsyncpgConnection) -> LongRun:
    """Tasks of all kinds, and many others around them, with no statistics to go by."""
    await put_long_run(connection, [State.QUEUED] * 5_000)
    states = [State.COMPLETED, State.QUEUED, State.FAILED, State.RETRYING] * (MANY // 4)
    made = await put_long_run(connection, states, keys=("a", "b"))
    async with unguarded(connection):
        await connection.execute(
            "UPDATE jobs SET state = 'processing', lease = 1 WHERE id = ANY ($1)",
            [made.task(index) for index in range(1, 80, 4)],
        )
    await write_claims(connection)
    await connection.execute("VACUUM ANALYZE jobs")
    return made


async def test_a_page_reads_what_it_shows_wherever_it_begins(
    line: Connection, long_run: LongRun
) -> None:
    common: dict[str, Any] = {"org": ORG, "result_bytes_max": RESULT_INLINE_BYTES_MAX}
    middle = MANY // 2
    ids = [long_run.task(index) for index in range(middle, middle + LIMIT)]
    place = {
        "after_queue_key": run_queue_key(long_run.run, "a"),
        "after_run_at": "2020-01-01",
        "after_row": UUID(int=0),
        "after_id": UUID(int=0),
    }
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "ended": ("jobs_pkey", {"state": "failed", "after": middle}),
        "queued": ("jobs_pkey", place),
        "scheduled": ("jobs_pkey", {"after": middle}),
        "running": ("jobs_pkey", {"after": -1}),
    }
    for name, (index, arguments) in asked.items():
        every = {**common, **arguments, "run": long_run.run, "limit": LIMIT}
        plan = await line.run(
            lambda it, name=name, every=every: explain_query(it, sql, f"tasks/{name}", **every)
        )
        _check_page(plan, index, name)
        assert plan.indexes("queue") == ({"queue_order"} if name == "queued" else set()), name
        assert plan.indexes("postponed") == (
            {"postponed_of_run"} if name == "scheduled" else set()
        ), name
        assert plan.rows_read("postponed") <= LIMIT, name
        ended = {"ended_tasks_pkey"} if name == "ended" else set()
        assert plan.indexes("ended_tasks") == ended, name
        # A quarter of each block has failed.
        assert plan.rows_read("ended_tasks") <= (LIMIT + 2 * 64) / 16 + 1, name
    by_ids = await line.run(
        lambda it: explain_query(it, sql, "tasks/by_ids", **common, runs=[long_run.run], ids=ids)
    )
    _check_page(by_ids, "jobs_pkey", "by_ids")


def _check_page(plan: Plan, index: str, name: str) -> None:
    assert plan.indexes("jobs") == {index}, name
    assert plan.rows_read("jobs") <= LIMIT, name
    assert plan.buffers < LIMIT * 12, name


async def test_the_more_tasks_a_page_may_have_the_shorter_are_its_results(
    connection: AsyncpgConnection, line: Connection, tasks: TaskRepository
) -> None:
    result = b"x" * (PAGE_RESULTS_BYTES_MAX // 200 + 1)
    made = await put_long_run(connection, [State.COMPLETED], result=result)
    view = await made.view(line)
    ((task,), _) = await tasks.page(view, view.current, status=None, after=None, limit=1)
    assert task.result == result
    ended = TaskStatus.SUCCEEDED
    ((task,), _) = await tasks.page(view, view.current, status=ended, after=None, limit=200)
    assert (task.result, task.result_bytes) == (None, len(result))
