"""How long a caller is asked to stay away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import CoatcheckError, DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.explanation import Eta
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.http.retry_after import RetryAfterEstimator, kind_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINT = "docs.post__analyze"


def test_nothing_is_known_of_the_first_job() -> None:
    assert RetryAfterEstimator().retry_after(ENDPOINT, Lane.STANDARD) == 2


def test_a_new_job_is_asked_for_at_half_of_what_others_took() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(waited=4, ran=16))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 10


def test_it_adapts_to_what_jobs_take_of_late() -> None:
    retry_after = RetryAfterEstimator()
    for number in range(50):
        retry_after.learn(ended(ran=40, at=number))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 20
    for number in range(50, 100):
        retry_after.learn(ended(ran=4, at=number))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 3


def test_lanes_and_endpoints_are_told_apart() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=40))
    assert retry_after.retry_after(ENDPOINT, Lane.BULK) == 2
    assert retry_after.retry_after("docs.post__other", Lane.STANDARD) == 2


def test_http_upstreams_are_told_apart_by_organisation_and_flow() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=40, endpoint=UPSTREAM_ENDPOINT, queue_key="maps.v1.get__route"))
    kinds = [
        kind_of("default", UPSTREAM_ENDPOINT, "maps.v1.get__route"),
        kind_of("default", UPSTREAM_ENDPOINT, "maps.v2.get__route"),
        kind_of("other", UPSTREAM_ENDPOINT, "maps.v1.get__route"),
    ]
    assert [retry_after.retry_after(kind, Lane.STANDARD) for kind in kinds] == [20, 2, 2]
    assert kind_of("default", ENDPOINT, "") == kind_of("other", ENDPOINT, "") == ENDPOINT


def test_a_job_counts_once_however_often_it_is_shown() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=40))
    for _ in range(100):
        retry_after.learn(ended(ran=0, at=1))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 16


def test_it_lies_between_a_second_and_a_minute() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=0.001))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 1
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=86_400))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 60


def test_what_a_running_job_has_behind_it_is_taken_off() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(waited=10, ran=30))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD, queued(age=10)) == 15
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD, running(age=30, ran=20)) == 5


def test_a_job_that_takes_longer_than_others_is_asked_for_less_and_less_often() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=4))
    waits = [
        retry_after.retry_after(ENDPOINT, Lane.STANDARD, running(age=age, ran=age))
        for age in (8, 40, 80, 400)
    ]
    assert waits == [2, 10, 20, 60]


def test_a_job_that_is_due_later_is_not_asked_for_before() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(ended(ran=2))
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD, queued(age=1, due_in=30)) == 30


def test_it_is_known_when_a_job_is_due_although_nothing_is_known_of_others() -> None:
    postponed = view(State.RETRYING, created_at=NOW, run_at=NOW + timedelta(seconds=300))
    assert RetryAfterEstimator().retry_after(ENDPOINT, Lane.STANDARD, postponed) == 300


async def test_only_a_job_that_waits_longer_than_others_did_is_looked_up_and_once_in_a_line() -> (
    None
):
    asked: list[JobView] = []

    async def forecast(job: JobView) -> Eta:
        asked.append(job)
        return Eta(50.0, 60.0, 70.0, 80.0)

    retry_after = RetryAfterEstimator(forecast)
    retry_after.learn(ended(waited=20, ran=1))
    assert await retry_after.forecast(queued(age=15, due_in=-15)) is None
    assert await retry_after.forecast(running(age=30, ran=5)) is None
    assert asked == []
    for _ in range(5):
        assert await retry_after.forecast(queued(age=25, due_in=-25)) == 70.0
    assert len(asked) == 1
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD, queued(age=25), 70.0) == 35


@pytest.mark.parametrize("fault", [DatabaseUnavailable("away"), OutcomeUnknown("it broke")])
async def test_a_database_that_is_away_is_no_reason_to_refuse_an_answer(
    fault: CoatcheckError,
) -> None:
    async def forecast(_: JobView) -> Eta:
        raise fault

    assert await RetryAfterEstimator(forecast).forecast(queued(age=25, due_in=-25)) is None


def test_a_job_that_never_ran_teaches_nothing() -> None:
    retry_after = RetryAfterEstimator()
    retry_after.learn(
        view(State.CANCELLED, created_at=NOW, finished_at=NOW + timedelta(seconds=50))
    )
    assert retry_after.retry_after(ENDPOINT, Lane.STANDARD) == 2


def test_it_does_not_grow_without_bound() -> None:
    retry_after = RetryAfterEstimator()
    for number in range(10_001):
        retry_after.learn(ended(ran=40, endpoint=f"docs.post__{number}"))
    assert retry_after.retry_after("docs.post__0", Lane.STANDARD) == 2
    assert retry_after.retry_after("docs.post__10000", Lane.STANDARD) == 20


def ended(
    *,
    waited: float = 0,
    ran: float = 0,
    at: float = 0,
    endpoint: str = ENDPOINT,
    queue_key: str = "",
) -> JobView:
    finished = NOW + timedelta(seconds=at)
    started = finished - timedelta(seconds=ran)
    created = started - timedelta(seconds=waited)
    return view(
        State.COMPLETED,
        created_at=created,
        started_at=started,
        finished_at=finished,
        endpoint=endpoint,
        queue_key=queue_key,
    )


def queued(*, age: float, due_in: float = 0) -> JobView:
    created = NOW - timedelta(seconds=age)
    return view(State.QUEUED, created_at=created, run_at=NOW + timedelta(seconds=due_in))


def running(*, age: float, ran: float) -> JobView:
    return view(
        State.PROCESSING,
        created_at=NOW - timedelta(seconds=age),
        started_at=NOW - timedelta(seconds=ran),
    )


def view(
    state: State,
    *,
    created_at: datetime,
    run_at: datetime | None = None,
    started_at: datetime | None = None,
    finished_at: datetime | None = None,
    endpoint: str = ENDPOINT,
    queue_key: str = "",
) -> JobView:
    return JobView(
        org="default",
        uuid=UUID(int=0),
        lane=Lane.STANDARD,
        endpoint=endpoint,
        queue_key=queue_key,
        state=state,
        failures=0,
        failures_max=3,
        crashes=0,
        interruptions=0,
        unreachables=0,
        created_at=created_at,
        run_at=run_at or created_at,
        dispatched_at=started_at,
        started_at=started_at,
        finished_at=finished_at,
        updated_at=created_at,
        expires_at=None,
        start_deadline=None,
        read_at=NOW,
        progress=None,
        progress_note=None,
        idempotency_key=None,
        request_id=None,
        owner="",
        error_code=None,
        error_message=None,
        execution_id=None,
        result_bytes=None,
        result=None,
    )
