"""Batches of ten tasks, submitted while a large one drains: what their callers see."""

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus

from bench.batches.amounts import SMALL_TASKS
from bench.batches.client import BatchClient
from bench.http.paced import NotServedError
from bench.payload import payload_object

_WAIT_SECONDS = 60
_PAUSE_SECONDS = 0.5


class SmallBatches:
    """Submits them one after the other while the large batch has enough tasks left."""

    def __init__(self, client: BatchClient, handlers_max: int) -> None:
        self._client = client
        self._handlers_max = handlers_max
        self.milliseconds: list[float] = []
        self.runs: list[str] = []

    async def hand_in(self, handlers_run: Callable[[], int]) -> int:
        """The number of their tasks."""
        while handlers_run() < self._handlers_max:
            tasks = [payload_object(number) for number in range(SMALL_TASKS)]
            begun = time.perf_counter()
            job = await self._client.hand_in(
                {"service": "noop", "endpoint": "run", "tasks": tasks},
                HTTPStatus.OK,
                wait=_WAIT_SECONDS,
            )
            self.milliseconds.append((time.perf_counter() - begun) * 1_000)
            self.runs.append(job["runs"][-1]["id"])
            if job["counts"]["succeeded"] != SMALL_TASKS:
                raise NotServedError(f"a small batch came to {job['counts']}")
            await asyncio.sleep(_PAUSE_SECONDS)
        return len(self.milliseconds) * SMALL_TASKS
