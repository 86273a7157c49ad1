"""Stopping an isolated job: by asking, by SIGTERM, by SIGKILL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coatcheck.domain.states import Cancelled, Completed
from coatcheck.job import Attachment, LogLine
from tests.worker.attempts import BlockedRecorder, Recorder
from tests.worker.isolation import GRACE_SECONDS, Isolation, is_alive, is_reaped


@pytest.mark.parametrize("handler", ["look", "await_cancel"])
async def test_a_handler_that_was_asked_to_stop_can(isolation: Isolation, handler: str) -> None:
    running = await isolation.start(handler)
    running.job.mark_cancel_requested()
    assert await running.task == Cancelled()
    assert [line.message for line in running.recorder.of(LogLine)] == ["saw it"]
    assert is_reaped(running.said["process"])


async def test_a_handler_that_was_asked_before_it_began_sees_it_too(isolation: Isolation) -> None:
    recorder = Recorder()
    job = isolation.job("look", recorder)
    job.mark_cancel_requested()
    assert await isolation.run("look", recorder, job) == Cancelled()


async def test_a_handler_that_was_asked_while_it_attached_a_file_sees_it_too(
    isolation: Isolation,
) -> None:
    recorder = BlockedRecorder()
    job = isolation.job("attach_and_await_cancel", recorder)
    task = asyncio.create_task(isolation.run("attach_and_await_cancel", recorder, job))
    await recorder.first(Attachment)
    job.mark_cancel_requested()
    await asyncio.sleep(0)  # the word goes out, ahead of the attachment's answer
    recorder.room.set()
    assert await task == Cancelled()


async def test_a_handler_that_was_asked_may_finish_instead(isolation: Isolation) -> None:
    running = await isolation.start("finish_anyway")
    running.job.mark_cancel_requested()
    assert await running.task == Completed(b'"done"')


@pytest.mark.parametrize("handler", ["unwind", "unwind_async"])
async def test_cancelling_the_task_unwinds_the_handler_and_ends_its_process(
    isolation: Isolation, tmp_path: Path, handler: str
) -> None:
    witness = tmp_path / "witness"
    running = await isolation.start(handler, witness=str(witness))
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    assert witness.read_text() == "unwound"
    assert is_reaped(running.said["process"])


async def test_a_handler_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    isolation = Isolation(tmp_path / "temp", grace_seconds=0.05)
    with isolation.temp_root:
        running = await isolation.start("resist")
        running.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.task
        assert is_reaped(running.said["process"])


async def test_a_second_cancellation_does_not_wait_for_the_grace(isolation: Isolation) -> None:
    running = await isolation.start("resist")
    running.task.cancel()
    await asyncio.sleep(0)  # the task is told, sends SIGTERM and begins to wait
    assert is_alive(running.said["process"])
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(GRACE_SECONDS / 2):
            await running.task
    assert is_reaped(running.said["process"])


async def test_a_task_cancelled_before_its_process_started_leaves_nothing(
    isolation: Isolation,
) -> None:
    task = asyncio.create_task(isolation.run("wait"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_end_of_the_program_ends_its_isolated_jobs_and_their_folders(tmp_path: Path) -> None:
    """``asyncio.run`` cancels what still runs, which is no reason to leave anything behind."""
    processes: list[int] = []
    isolation: list[Isolation] = []

    async def main() -> None:
        isolation.append(Isolation(tmp_path / "temp"))
        running = [await isolation[0].start("wait") for _ in range(2)]
        processes.extend(run.said["process"] for run in running)
        running[0].task.cancel()

    asyncio.run(main())
    assert all(is_reaped(process) for process in processes)
    assert isolation[0].folders() == []
    isolation[0].temp_root.close()
