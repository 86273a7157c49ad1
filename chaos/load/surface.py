"""The base of the loads of all five surfaces."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from typing import Any, Final

from chaos.load.calls import Calls, Servers
from chaos.load.following import Reader, Ticket
from chaos.world import World

RECEIVERS: Final = 4
"""Receivers of webhooks for each organisation and surface."""


class Stage:
    """What a whole run shares: its organisations, its world, and what was counted so far."""

    def __init__(self, servers: Servers, orgs: Sequence[str], world: World, seed: int) -> None:
        self.servers = servers
        self.orgs = orgs
        self.world = world
        self.history = world.history
        self.seed = seed
        self.submitted = 0
        self.ended = 0
        self.tasks_waiting = 0
        """Of batches that have not ended."""
        self.finished: list[tuple[Reader, Ticket]] = []
        """Jobs that were seen to have ended."""
        self._numbers = itertools.count(1)
        self._run = f"{seed}-{time.time():.0f}"

    @property
    def canary(self) -> str:
        """What every word of this run begins with."""
        return f"canary-{self.seed}-"

    @property
    def log(self) -> str:
        """Where handlers note that they were run."""
        return str(self.history.executions)

    def word(self) -> str:
        """A canary of its own for a payload."""
        return f"{self.canary}{next(self._numbers)}"

    def key(self) -> str:
        """An idempotency key that no run before has used. It is no canary: keys are kept."""
        return f"key-{self._run}-{next(self._numbers)}"


class Surface:
    """The load of one surface: ``scene`` plays one thing that a caller does, to its end."""

    name: str

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.rng = random.Random(f"{self.name} {stage.seed}")
        self.calls = Calls(stage.servers, stage.history, self.name, self.rng)
        self.reader = Reader(self.calls)

    async def prepare(self) -> None:
        """What has to be there before the first scene."""

    async def scene(self) -> None:
        raise NotImplementedError

    async def watch(self) -> None:
        """What is done beside the scenes, for as long as they are played."""

    # What scenes are made of

    def org(self) -> str:
        return self.rng.choice(self.stage.orgs)

    def chance(self, of_one: float) -> bool:
        return self.rng.random() < of_one

    def receiver(self, org: str) -> str:
        """The URL of one of those who receive webhooks."""
        number = self.rng.randrange(RECEIVERS)
        return f"{self.stage.world.receiver_url}/{org}/{self.name}/{number}"

    def handed_in(self) -> None:
        self.stage.submitted += 1

    def has_ended(self, ticket: Ticket) -> None:
        self.stage.ended += 1
        self.stage.finished.append((self.reader, ticket))

    def same(self, what: str, first: Any, second: Any, job: str) -> None:
        """Note it as a violation if two things that have to be the same are not."""
        if first != second:
            self.calls.violation(what, f"{_short(first)} is not {_short(second)}", job)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
