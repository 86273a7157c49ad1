"""What a handler raises decides whether its job is tried again, when, and what that costs it."""

from __future__ import annotations

from datetime import timedelta

from coatcheck import FailJob, Job, RetryLater, Service, State, TargetUnreachable
from coatcheck.domain.errors import JobCancelled
from coatcheck.domain.retry import JOB_BACKOFF
from tests.deployment import Deployment


async def test_invalid_input_fails_at_once_and_is_never_run(deployment: Deployment) -> None:
    service = Service("lab")
    ran: list[int] = []

    @service.post("/square")
    async def square(number: int) -> int:
        ran.append(number)
        return number * number

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__square", {"number": "a canary"}, retries=3)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "invalid_input", 1)
    assert view.error_message is not None
    assert "number" in view.error_message
    assert "canary" not in view.error_message
    assert ran == []


async def test_a_failing_handler_is_tried_again_after_a_growing_backoff_until_none_is_left(
    deployment: Deployment,
) -> None:
    service = Service("lab")
    attempts: list[int] = []

    @service.post("/break")
    async def break_down(job: Job) -> None:
        attempts.append(job.attempt)
        raise LookupError("no such thing")

    deployment.start_maintenance()
    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__break", retries=2)
    for failures in (1, 2):
        view = await deployment.wait_for_job(
            ticket,
            lambda view, failures=failures: (
                view.state is State.RETRYING and view.failures == failures
            ),
            f"the job waits after failure {failures}",
        )
        least = JOB_BACKOFF.delay(failures - 1, 0.0)
        most = JOB_BACKOFF.delay(failures - 1, 1.0)
        slack = timedelta(milliseconds=1)
        delay = view.run_at - view.updated_at
        assert timedelta(seconds=least) - slack <= delay <= timedelta(seconds=most) + slack
        assert (view.error_code, view.result) == ("handler_error", None)
        await deployment.make_due(ticket)
    view = await deployment.wait_for_end(ticket)

    assert attempts == [1, 2, 3]
    assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
    assert (view.failures, view.crashes) == (3, 0)
    assert view.error_message is not None
    assert "LookupError: no such thing" in view.error_message


async def test_a_handler_that_fails_once_completes_at_its_second_attempt(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/stumble")
    async def stumble(job: Job) -> int:
        if job.attempt == 1:
            job.retry("not yet", after=0.0)
        return job.attempt

    deployment.start_maintenance()
    await deployment.start_worker(service)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__stumble"))

    assert (view.state, view.result, view.failures) == (State.COMPLETED, b"2", 1)
    assert (view.error_code, view.error_message) == (None, None)


async def test_retry_later_waits_for_as_long_as_the_handler_said(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/later")
    async def later() -> None:
        raise RetryLater("busy", after=3600.0, code="upstream_busy")

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__later")
    view = await deployment.wait_for_state(ticket, State.RETRYING)

    assert view.run_at - view.updated_at == timedelta(hours=1)
    assert (view.error_code, view.error_message, view.failures) == ("upstream_busy", "busy", 1)


async def test_fail_job_fails_for_good_whatever_retries_are_left(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/refuse")
    async def refuse() -> None:
        raise FailJob("no such document", code="document_missing")

    await deployment.start_worker(service)
    view = await deployment.wait_for_end(
        await deployment.engine.submit("lab.post__refuse", retries=9)
    )

    assert view.state is State.FAILED
    assert (view.error_code, view.error_message) == ("document_missing", "no such document")
    assert view.failures == 1


async def test_an_unreachable_target_spends_no_attempt(deployment: Deployment) -> None:
    service = Service("lab")
    attempts: list[int] = []

    @service.post("/call")
    async def call(job: Job) -> str:
        attempts.append(job.attempt)
        if len(attempts) < 3:
            raise TargetUnreachable("no route", after=0.0)
        return "answered"

    deployment.start_maintenance()
    await deployment.start_worker(service)
    # With no retry allowed, one counted failure would be the end of it.
    view = await deployment.wait_for_end(
        await deployment.engine.submit("lab.post__call", retries=0)
    )

    assert view.state is State.COMPLETED
    assert (view.unreachables, view.failures, view.crashes) == (2, 0, 0)
    assert attempts == [1, 1, 1]


async def test_a_handler_that_cancels_a_job_nobody_asked_to_cancel_is_a_failed_attempt(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/desert")
    async def desert() -> None:
        raise JobCancelled

    await deployment.start_worker(service)
    view = await deployment.wait_for_end(
        await deployment.engine.submit("lab.post__desert", retries=0)
    )

    assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
    assert view.failures == 1


async def test_a_result_that_is_no_json_fails_the_job_for_good(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/odd")
    async def odd() -> object:
        return object()

    await deployment.start_worker(service)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__odd", retries=3))

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "result_not_json", 1)
