"""Processes that die under their job, or leave others behind: what is told, and what is left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from coatcheck.domain.states import Completed, Retryable
from tests.worker.isolation import Isolation, is_alive, is_reaped, wait_until_dead


async def test_a_process_killed_in_the_middle_is_retried_and_leaves_nothing(
    isolation: Isolation,
) -> None:
    running = await isolation.start("wait")
    process, folder = running.said["process"], Path(running.said["folder"])
    assert (folder / "secret").exists()
    os.kill(process, signal.SIGKILL)
    outcome = await running.task
    assert isinstance(outcome, Retryable)
    assert outcome.code == "child_killed"
    assert "SIGKILL" in outcome.message
    assert is_reaped(process)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [("exit", "exited with status 7"), ("crash", "SIGSEGV"), ("abort", "SIGABRT")],
)
async def test_a_process_that_ends_without_a_result_is_retried_and_its_end_told(
    isolation: Isolation, how: str, said: str
) -> None:
    outcome = await isolation.run("die", how=how)
    assert isinstance(outcome, Retryable)
    assert outcome.code == "child_killed"
    assert said in outcome.message


async def test_what_a_finished_handler_started_is_ended_with_it(isolation: Isolation) -> None:
    running = await isolation.start("family", then="return")
    assert await running.task == Completed(b"null")
    for process in running.said["family"]:
        wait_until_dead(process)


async def test_what_a_killed_handler_started_is_ended_with_it(isolation: Isolation) -> None:
    running = await isolation.start("family", then="wait")
    assert all(is_alive(process) for process in running.said["family"])
    os.kill(running.said["process"], signal.SIGKILL)
    outcome = await running.task
    assert isinstance(outcome, Retryable)
    assert outcome.code == "child_killed"
    for process in running.said["family"]:
        wait_until_dead(process)


async def test_what_a_cancelled_handler_started_is_ended_with_it(isolation: Isolation) -> None:
    running = await isolation.start("family", then="wait")
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    for process in running.said["family"]:
        wait_until_dead(process)
