"""Limits on an isolated job's memory and CPU time."""

from __future__ import annotations

import pytest

from coatcheck.domain.states import Completed, Retryable
from tests.worker.isolation import Isolation


async def test_a_handler_within_its_memory_completes(isolation: Isolation) -> None:
    assert await isolation.run("take_memory", megabytes=16) == Completed(b"16777216")


async def test_a_handler_over_its_memory_is_told_so_and_leaves_nothing(
    isolation: Isolation,
) -> None:
    assert await isolation.run("take_memory", megabytes=512) == Retryable(
        "memory_limit", "the handler needed more than its 256 MiB of memory"
    )


@pytest.mark.parametrize("ignoring", [False, True])
async def test_a_handler_over_its_cpu_time_is_ended_even_if_it_ignores_the_warning(
    isolation: Isolation, ignoring: bool
) -> None:
    assert await isolation.run("spin", ignoring=ignoring) == Retryable(
        "cpu_limit", "the handler used more than 1 s of CPU time"
    )
