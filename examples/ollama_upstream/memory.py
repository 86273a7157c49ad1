"""The memory that models are loaded into: capacity, eviction, and a queue of requests.

As in Ollama, requests are scheduled one after the other: while the first of them waits for a
model to become idle and make room, those behind it wait, too. A model that is being loaded is
already listed by ``/api/ps``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from examples.ollama_upstream.catalogue import Model
from examples.ollama_upstream.durations import timestamp
from examples.ollama_upstream.failures import too_many_waiting
from examples.ollama_upstream.records import Seen
from examples.ollama_upstream.tuning import Tuning


class Runner:
    """A model in memory, or being loaded."""

    def __init__(self, model: Model, places: int, keep_seconds: float) -> None:
        self.model = model
        self.loaded = asyncio.Event()
        self.users = 0
        self.places = asyncio.Semaphore(places)
        self.keep_seconds = keep_seconds
        self.idle_since = time.monotonic()

    @property
    def rest_seconds(self) -> float:
        """How long it stays from now on without a request."""
        used = 0.0 if self.users else time.monotonic() - self.idle_since
        return self.keep_seconds - used

    @property
    def expired(self) -> bool:
        return self.users == 0 and self.rest_seconds <= 0

    @property
    def listed(self) -> dict[str, Any]:
        """The model in the answer to ``GET /api/ps``."""
        model = self.model
        return {
            "name": model.name,
            "model": model.name,
            "size": model.size_bytes,
            "digest": model.digest,
            "details": model.details,
            "expires_at": timestamp(time.time() + self.rest_seconds),
            "size_vram": model.size_bytes,
            "context_length": 4_096,
        }


class Memory:
    """The models in memory. The least recently used idle one is evicted."""

    def __init__(self, tuning: Tuning, seen: Seen) -> None:
        self._tuning = tuning
        self._seen = seen
        self._runners: dict[str, Runner] = {}
        self._scheduling = asyncio.Lock()
        self._became_idle = asyncio.Condition()
        self._waiting = 0

    def listed(self) -> list[dict[str, Any]]:
        """The models in memory, the one that stays longest first."""
        self._forget_expired()
        runners = sorted(self._runners.values(), key=lambda runner: -runner.rest_seconds)
        return [runner.listed for runner in runners]

    def resident(self) -> list[str]:
        """The names of the models that are loaded."""
        self._forget_expired()
        return [name for name, runner in self._runners.items() if runner.loaded.is_set()]

    def empty(self) -> None:
        """Unload all models, as after a restart."""
        self._runners.clear()

    @asynccontextmanager
    async def model(self, model: Model, keep_seconds: float | None) -> AsyncIterator[Runner]:
        """The model in memory, loaded first if necessary; it stays while in use."""
        if self._waiting >= self._tuning.max_queue:
            self._seen.refused_busy += 1
            raise too_many_waiting()
        self._waiting += 1
        try:
            runner = await self._schedule(model, keep_seconds)
        finally:
            self._waiting -= 1
        try:
            await runner.loaded.wait()
            yield runner
        finally:
            await self._give_back(runner)

    @asynccontextmanager
    async def place(self, runner: Runner) -> AsyncIterator[None]:
        """A slot for one of the answers that a model generates at once."""
        if runner.places.locked():
            if self._waiting >= self._tuning.max_queue:
                self._seen.refused_busy += 1
                raise too_many_waiting()
            self._waiting += 1
            try:
                await runner.places.acquire()
            finally:
                self._waiting -= 1
        else:
            await runner.places.acquire()
        try:
            with self._seen.generating():
                yield
        finally:
            runner.places.release()

    def unload(self, model: Model) -> None:
        """Unload a model as soon as it is not in use."""
        runner = self._runners.get(model.name)
        if runner is not None:
            runner.keep_seconds = 0.0
            self._forget_expired()

    async def _schedule(self, model: Model, keep_seconds: float | None) -> Runner:
        async with self._scheduling:
            self._forget_expired()
            runner = self._runners.get(model.name)
            if runner is None:
                await self._make_room()
                runner = Runner(model, self._tuning.parallel, self._tuning.keep_alive_seconds)
                self._runners[model.name] = runner
                self._seen.loads[model.name] += 1
                asyncio.get_running_loop().call_later(self._tuning.load_seconds, runner.loaded.set)
            runner.users += 1
            if keep_seconds is not None:
                runner.keep_seconds = keep_seconds
            return runner

    async def _make_room(self) -> None:
        while len(self._runners) >= self._tuning.max_loaded:
            idle = [runner for runner in self._runners.values() if runner.users == 0]
            if idle:
                oldest = min(idle, key=lambda runner: runner.idle_since)
                del self._runners[oldest.model.name]
                self._seen.swaps += 1
            else:
                async with self._became_idle:
                    await self._became_idle.wait()

    async def _give_back(self, runner: Runner) -> None:
        runner.users -= 1
        runner.idle_since = time.monotonic()
        self._forget_expired()
        async with self._became_idle:
            self._became_idle.notify_all()

    def _forget_expired(self) -> None:
        for name, runner in list(self._runners.items()):
            if runner.expired:
                del self._runners[name]
