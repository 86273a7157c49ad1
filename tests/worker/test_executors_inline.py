"""Async handlers on the worker's event loop."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from coatcheck.domain.states import Cancelled, Completed, Failed, Retryable
from coatcheck.job import Job, ProgressReport
from coatcheck.service import Service
from coatcheck.worker import execution
from tests.worker.attempts import Recorder, new_job

service = Service("test")


@service.post("/echo")
async def echo(content: str, times: int = 1) -> dict[str, Any]:
    return {"content": content * times}


@service.post("/report")
async def report(job: Job) -> str:
    await job.progress(0.5, "halfway")
    return job.id


@service.post("/wait")
async def wait(job: Job) -> None:
    await job.progress(0)
    await asyncio.Event().wait()


@service.post("/stop")
async def stop(job: Job) -> None:
    await job.progress(0)
    await job.wait_cancelled()
    job.check_cancelled()


@service.post("/break")
async def break_down() -> None:
    raise LookupError("where is it?")


@service.post("/exit")
async def leave() -> None:
    sys.exit(3)


@service.post("/own")
async def cancel_own_task() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


@service.post("/group")
async def fail_in_a_group(job: Job) -> None:
    async def fail() -> None:
        job.fail("no", code="refused")

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(fail())


@service.post("/opaque")
async def opaque() -> object:
    return object()


async def run(key: str, payload: bytes = b"{}", recorder: Recorder | None = None) -> Any:
    endpoint = service.endpoints[f"post__{key}"]
    return await execution.run(endpoint, new_job(endpoint, recorder or Recorder()), payload)


async def test_arguments_go_in_and_the_value_comes_out() -> None:
    assert await run("echo", b'{"content":"ab","times":2}') == Completed(b'{"content":"abab"}')


async def test_a_handler_that_asks_for_its_job_gets_it() -> None:
    recorder = Recorder()
    outcome = await run("report", recorder=recorder)
    assert isinstance(outcome, Completed)
    assert recorder.reports == [ProgressReport(0.5, "halfway")]


async def test_invalid_input_fails_the_job_without_running_the_handler() -> None:
    assert await run("echo", b'{"times":"x"}') == Failed(
        "invalid_input", "content: missing; times: expected `int`, got `str`"
    )


async def test_an_exception_is_retried() -> None:
    assert await run("break") == Retryable("handler_error", "LookupError: where is it?")


async def test_sys_exit_ends_the_attempt_and_not_the_worker() -> None:
    assert await run("exit") == Retryable("handler_error", "SystemExit: 3")


async def test_a_result_that_is_not_json_fails_the_job() -> None:
    outcome = await run("opaque")
    assert isinstance(outcome, Failed)
    assert outcome.code == "result_not_json"


async def test_a_handler_that_awaited_a_cancelled_task_of_its_own_is_retried() -> None:
    assert await run("own") == Retryable("handler_error", "CancelledError: ")


async def test_a_signal_raised_in_a_task_group_counts() -> None:
    assert await run("group") == Failed("refused", "no")


async def test_a_handler_that_was_asked_to_stop_can() -> None:
    endpoint = service.endpoints["post__stop"]
    recorder = Recorder()
    job = new_job(endpoint, recorder)
    task = asyncio.create_task(execution.run(endpoint, job, b"{}"))
    await recorder.first(ProgressReport)
    job.mark_cancel_requested()
    assert await task == Cancelled()


async def test_cancelling_the_task_stops_the_handler_and_raises() -> None:
    endpoint = service.endpoints["post__wait"]
    recorder = Recorder()
    task = asyncio.create_task(execution.run(endpoint, new_job(endpoint, recorder), b"{}"))
    await recorder.first(ProgressReport)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
