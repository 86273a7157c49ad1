"""The base class of the loads of all five products."""

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
"""Webhook receivers for each organisation and product."""


class LoadContext:
    """The shared state of a run: organisations, world and counts."""

    def __init__(self, servers: Servers, orgs: Sequence[str], world: World, seed: int) -> None:
        self.servers = servers
        self.orgs = orgs
        self.world = world
        self.history = world.history
        self.seed = seed
        self.submitted = 0
        self.ended = 0
        self.tasks_waiting = 0
        """Unfinished batches."""
        self.finished: list[tuple[Reader, Ticket]] = []
        """Jobs seen as finished."""
        self._numbers = itertools.count(1)
        self._run = f"{seed}-{time.time():.0f}"

    @property
    def canary(self) -> str:
        """The prefix of every canary of this run."""
        return f"canary-{self.seed}-"

    @property
    def log(self) -> str:
        """The file where handlers record their executions."""
        return str(self.history.executions)

    def word(self) -> str:
        """A new canary for a payload."""
        return f"{self.canary}{next(self._numbers)}"

    def key(self) -> str:
        """A new idempotency key. It is not a canary, because keys are kept."""
        return f"key-{self._run}-{next(self._numbers)}"


class ProductLoad:
    """The load of one product: ``scenario`` runs one use of its API to the end."""

    name: str

    def __init__(self, context: LoadContext) -> None:
        self.context = context
        self.rng = random.Random(f"{self.name} {context.seed}")
        self.calls = Calls(context.servers, context.history, self.name, self.rng)
        self.reader = Reader(self.calls)

    async def prepare(self) -> None:
        """Create what the scenarios need."""

    async def scenario(self) -> None:
        raise NotImplementedError

    async def watch(self) -> None:
        """Background work while scenarios run."""

    # Parts of scenarios

    def org(self) -> str:
        return self.rng.choice(self.context.orgs)

    def chance(self, of_one: float) -> bool:
        return self.rng.random() < of_one

    def receiver(self, org: str) -> str:
        """The URL of a webhook receiver."""
        number = self.rng.randrange(RECEIVERS)
        return f"{self.context.world.receiver_url}/{org}/{self.name}/{number}"

    def handed_in(self) -> None:
        self.context.submitted += 1

    def has_ended(self, ticket: Ticket) -> None:
        self.context.ended += 1
        self.context.finished.append((self.reader, ticket))

    def same(self, what: str, first: Any, second: Any, job: str) -> None:
        """Record a violation if two values differ."""
        if first != second:
            self.calls.violation(what, f"{_short(first)} is not {_short(second)}", job)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
