"""Two statements that take jobs from their holder outside the usual events: only by legal steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.core.queries import leases, maintenance
from coatcheck.domain.states import HELD, State, TransitionEvent, after
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX
from tests.db.rows import HOLDER_BOOT, put_job, row_of, state_of

LOST_CLAIM = HOLDER_BOOT << 40 | 77
LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


@pytest.mark.parametrize("state", sorted(HELD))
async def test_a_lost_claim_is_given_back_as_a_release(
    state: State, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state, lease=LOST_CLAIM)
    assert await leases.release_claim(worker.line, LOST_CLAIM, KEEP_FAILED_SECONDS) == [job.uuid]
    row = await row_of(connection, job)
    assert State(row["state"]) is after(state, TransitionEvent.RELEASE)
    assert (row["interruptions"], row["failures"], row["crashes"]) == (1, 0, 0)


async def test_only_the_lost_claim_is_given_back(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    others = [
        await put_job(connection, State.DISPATCHING, lease=LOST_CLAIM + 1),
        await put_job(connection, State.DISPATCHING, lease=LOST_CLAIM + (1 << 40)),
        await put_job(connection, State.QUEUED),
        await put_job(connection, State.COMPLETED),
    ]
    before = [await row_of(connection, job) for job in others]
    assert await leases.release_claim(worker.line, LOST_CLAIM, KEEP_FAILED_SECONDS) == []
    assert [await row_of(connection, job) for job in others] == before


@pytest.mark.parametrize("state", sorted(HELD))
@pytest.mark.parametrize("failures", [0, 3])
async def test_an_overrun_attempt_ends_as_a_retry(
    state: State, failures: int, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state, run_deadline=LONG_AGO, failures=failures, failures_max=3)
    assert await fail_overrun(worker) == 1
    expected = after(state, TransitionEvent.RETRY if failures < 3 else TransitionEvent.FAIL)
    if state is State.CANCEL_REQUESTED:
        expected = State.CANCELLED  # with or without an attempt left
    assert await state_of(connection, job) is expected


async def test_an_attempt_within_its_deadline_and_slack_is_left_alone(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    just_over = datetime.now(UTC) - timedelta(seconds=5)
    job = await put_job(connection, State.PROCESSING, run_deadline=just_over)
    before = await row_of(connection, job)
    assert await fail_overrun(worker) == 0
    assert await row_of(connection, job) == before


async def fail_overrun(worker: Claimer) -> int:
    ended = await maintenance.fail_overrun(
        worker.line,
        slack_seconds=60.0,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )
    return len(ended)
