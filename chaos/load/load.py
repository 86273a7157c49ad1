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
from chaos.load.speech import Speech
from chaos.load.surface import Stage, Surface
from chaos.world import World

_SURFACES: Final[Mapping[str, tuple[type[Surface], float]]] = {
    "gateway": (Gateway, 0.56),
    "batches": (Batches, 0.08),
    "llm": (Llm, 0.14),
    "speech": (Speech, 0.14),
    "graphs": (Graphs, 0.08),
}
"""The loads of the surfaces, and the part that each has of the rate."""

SURFACES: Final = tuple(_SURFACES)
CALLS_OF_A_SCENE: Final = 2.5
"""How many calls a scene makes, as a rule; the rate is in calls."""
_SCENES_WAITING_MAX: Final = 150
_TASKS_WAITING_MAX: Final = 3_000
"""What has not ended. Above these nothing new is begun: a deployment that is down has enough."""
_LOOKED_AT_AGAIN: Final = 300
_ANSWER_SECONDS_MAX: Final = 60.0
_SAMPLE_SECONDS: Final = 1.0


class Load:
    """A mixed load on the servers at ``urls``, as the organisations whose ``keys`` it is given.

    ``rate`` is how many calls a second it makes, about, while the deployment keeps up with it.
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
            raise ValueError(f"there is no surface {', '.join(sorted(unknown))}")
        self._history = history
        self._servers = Servers(urls, keys)
        self._stage = Stage(self._servers, list(keys), world, seed)
        self._rng = random.Random(f"load {seed}")
        self._hooks = Hooks(self._stage)
        chosen = {name: _SURFACES[name] for name in SURFACES if name in surfaces}
        self._surfaces = [made(self._stage) for made, _ in chosen.values()]
        self._weights = [weight for _, weight in chosen.values()]
        # A part of the whole rate, so that a surface alone is not asked for more than it can.
        self._scenes_per_second = rate / CALLS_OF_A_SCENE * sum(self._weights)
        self._scenes: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._failures: list[BaseException] = []

    @property
    def canaries(self) -> list[bytes]:
        """What is in every payload, and must be nowhere once all was forgotten."""
        return [self._stage.canary.encode()]

    @property
    def waiting(self) -> int:
        """Scenes that have not come to their end."""
        return len(self._scenes)

    async def run(self, until: asyncio.Event) -> None:
        """Begin scenes until the event is set. Those that go on then are left to ``settle``.

        Faults are lived with; a mistake of the load itself is raised.
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
            pause = self._rng.expovariate(self._scenes_per_second)
            try:
                await asyncio.wait_for(until.wait(), pause)
            except TimeoutError:
                continue

    async def settle(self, limit_seconds: float, *, look_again: bool = True) -> None:
        """Wait until every scene has ended: all calls are definite, all jobs seen to have ended.

        What is left after the limit is noted as ``unsettled``. Then jobs that have ended are looked
        at once more: they have to be as they were. Not so where retention may have removed them by
        now. Nothing can be begun after this.
        """
        if self._scenes:
            await asyncio.wait(self._scenes, timeout=limit_seconds)
        left = Counter(scene.get_name() for scene in self._scenes)
        for task in [*self._scenes, *self._watching]:
            task.cancel()
        await asyncio.gather(*self._scenes, *self._watching, return_exceptions=True)
        self._history.note(
            "settled", unsettled=left.total(), of_surfaces=dict(left), **self._counts()
        )
        self._raise_failures()
        if look_again:
            await self._look_again()
        await self._servers.close()

    async def _look_again(self) -> None:
        finished = self._stage.finished
        for reader, ticket in self._rng.sample(finished, min(len(finished), _LOOKED_AT_AGAIN)):
            try:
                await asyncio.wait_for(reader.look_again(ticket), _ANSWER_SECONDS_MAX)
            except Lost:
                continue  # it is in the history
            except TimeoutError:
                self._history.note(
                    "violation",
                    check="a deployment that is whole again answers",
                    surface=None,
                    job=ticket.job,
                    detail=f"no answer for {_ANSWER_SECONDS_MAX:g} s",
                )
                return

    def _begin(self, surface: Surface) -> None:
        task = asyncio.create_task(surface.scene(), name=surface.name)
        self._scenes.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, scene: asyncio.Task[None]) -> None:
        self._scenes.discard(scene)
        if scene.cancelled():
            return
        error = scene.exception()
        if error is not None and not isinstance(error, Lost):
            self._failures.append(error)

    def _raise_failures(self) -> None:
        failed = [task for task in self._watching if task.done() and not task.cancelled()]
        errors = [error for task in failed if (error := task.exception()) is not None]
        for error in [*self._failures, *errors]:
            raise error

    def _has_room(self) -> bool:
        return (
            len(self._scenes) < _SCENES_WAITING_MAX
            and self._stage.tasks_waiting < _TASKS_WAITING_MAX
        )

    async def _sample(self) -> None:
        while True:
            self._history.note("sample", **self._counts())
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _counts(self) -> dict[str, int]:
        stage = self._stage
        return {
            "submitted": stage.submitted,
            "ended": stage.ended,
            "waiting": stage.submitted - stage.ended,
            "tasks_waiting": stage.tasks_waiting,
            "scenes": len(self._scenes),
        }
