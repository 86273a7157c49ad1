"""The whole load: starts scenarios at a fixed rate, and runs each to its end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from chaos.history import History
from chaos.load.batches import Batches
from chaos.load.calls import Servers
from chaos.load.following import Lost
from chaos.load.gateway import Gateway
from chaos.load.graphs import Graphs
from chaos.load.hooks import Hooks
from chaos.load.llm import Llm
from chaos.load.product_load import LoadContext, ProductLoad
from chaos.load.speech import Speech
from chaos.world import World

_SURFACES: Final[Mapping[str, tuple[type[ProductLoad], float]]] = {
    "gateway": (Gateway, 0.56),
    "batches": (Batches, 0.08),
    "llm": (Llm, 0.14),
    "speech": (Speech, 0.14),
    "graphs": (Graphs, 0.08),
}
"""The loads of the products, and the share of the rate that each has."""

SURFACES: Final = tuple(_SURFACES)
CALLS_PER_SCENARIO: Final = 2.5
"""The usual number of calls of a scenario; the rate is in calls."""
_SCENARIOS_WAITING_MAX: Final = 150
_TASKS_WAITING_MAX: Final = 3_000
"""Limits on unfinished work. Above them no new scenario starts."""
_LOOKED_AT_AGAIN: Final = 300
_ANSWER_SECONDS_MAX: Final = 60.0
_SAMPLE_SECONDS: Final = 1.0


class Load:
    """A mixed load on the servers at ``urls``, with the ``keys`` of its organisations.

    ``rate`` is the approximate number of calls a second while the deployment keeps up.
    """

    def __init__(
        self,
        urls: Sequence[str],
        keys: Mapping[str, str],
        world: World,
        history: History,
        seed: int,
        surfaces: Collection[str] = SURFACES,
        rate: float = 20.0,
    ) -> None:
        unknown = set(surfaces) - set(SURFACES)
        if unknown:
            raise ValueError(f"unknown product: {', '.join(sorted(unknown))}")
        self._history = history
        self._servers = Servers(urls, keys)
        self._context = LoadContext(self._servers, list(keys), world, seed)
        self._rng = random.Random(f"load {seed}")
        self._hooks = Hooks(self._context)
        chosen = {name: _SURFACES[name] for name in SURFACES if name in surfaces}
        self._surfaces = [made(self._context) for made, _ in chosen.values()]
        self._weights = [weight for _, weight in chosen.values()]
        # A share of the whole rate, so that one product alone is not overloaded.
        self._scenarios_per_second = rate / CALLS_PER_SCENARIO * sum(self._weights)
        self._scenarios: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._failures: list[BaseException] = []

    @property
    def canaries(self) -> list[bytes]:
        """The common prefix of all payloads, which must be nowhere after their deletion."""
        return [self._context.canary.encode()]

    @property
    def waiting(self) -> int:
        """The number of running scenarios."""
        return len(self._scenarios)

    async def run(self, until: asyncio.Event) -> None:
        """Start scenarios until the event is set. ``settle`` waits for those still running.

        Faults are tolerated; a bug in the load itself is raised.
        """
        await self._hooks.prepare()
        for surface in self._surfaces:
            await surface.prepare()
        watches = [self._sample(), *(surface.watch() for surface in self._surfaces)]
        self._watching = [asyncio.create_task(watch) for watch in watches]
        while not until.is_set():
            self._raise_failures()
            if self._has_room():
                self._begin(*self._rng.choices(self._surfaces, self._weights))
            pause = self._rng.expovariate(self._scenarios_per_second)
            try:
                await asyncio.wait_for(until.wait(), pause)
            except TimeoutError:
                continue

    async def settle(self, limit_seconds: float, *, look_again: bool = True) -> None:
        """Wait until every scenario has ended: all outcomes are known, all jobs are finished.

        Scenarios left after the limit are recorded as ``unsettled``. Then finished jobs are read
        once more and must be unchanged, unless retention may have removed them by now. No scenario
        can start after this.
        """
        if self._scenarios:
            await asyncio.wait(self._scenarios, timeout=limit_seconds)
        left = Counter(scenario.get_name() for scenario in self._scenarios)
        for task in [*self._scenarios, *self._watching]:
            task.cancel()
        await asyncio.gather(*self._scenarios, *self._watching, return_exceptions=True)
        self._history.note(
            "settled", unsettled=left.total(), of_surfaces=dict(left), **self._counts()
        )
        self._raise_failures()
        if look_again:
            await self._look_again()
        await self._servers.close()

    async def _look_again(self) -> None:
        finished = self._context.finished
        for reader, ticket in self._rng.sample(finished, min(len(finished), _LOOKED_AT_AGAIN)):
            try:
                await asyncio.wait_for(reader.look_again(ticket), _ANSWER_SECONDS_MAX)
            except Lost:
                continue  # it is in the history
            except TimeoutError:
                self._history.note(
                    "violation",
                    check="the deployment answers after the faults",
                    surface=None,
                    job=ticket.job,
                    detail=f"no answer for {_ANSWER_SECONDS_MAX:g} s",
                )
                return

    def _begin(self, surface: ProductLoad) -> None:
        task = asyncio.create_task(surface.scenario(), name=surface.name)
        self._scenarios.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, scenario: asyncio.Task[None]) -> None:
        self._scenarios.discard(scenario)
        if scenario.cancelled():
            return
        error = scenario.exception()
        if error is not None and not isinstance(error, Lost):
            self._failures.append(error)

    def _raise_failures(self) -> None:
        failed = [task for task in self._watching if task.done() and not task.cancelled()]
        errors = [error for task in failed if (error := task.exception()) is not None]
        for error in [*self._failures, *errors]:
            raise error

    def _has_room(self) -> bool:
        return (
            len(self._scenarios) < _SCENARIOS_WAITING_MAX
            and self._context.tasks_waiting < _TASKS_WAITING_MAX
        )

    async def _sample(self) -> None:
        while True:
            self._history.note("sample", **self._counts())
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _counts(self) -> dict[str, int]:
        context = self._context
        return {
            "submitted": context.submitted,
            "ended": context.ended,
            "waiting": context.submitted - context.ended,
            "tasks_waiting": context.tasks_waiting,
            "scenarios": len(self._scenarios),
        }
