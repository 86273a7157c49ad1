"""The definition of a contender: its start command, its settings, and its client.

A contender has two programs. Its client submits jobs and reads the store; it has its own process
and is controlled by requests (`bench.client_host` in Python, `node/host.mjs` in Node). Its worker
is whatever the contender runs in production, with a handler that calls the recorder and returns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class StoreKind(StrEnum):
    """Which server a contender keeps its jobs in."""

    POSTGRES = "postgres"
    REDIS = "redis"


class Ability(StrEnum):
    """Optional abilities of contenders; a scenario that needs one shows "-" for the others."""

    BULK = "bulk"
    WAIT = "wait"
    CLAIM_COST = "claim_cost"


@dataclass(frozen=True)
class Contender:
    """One queue under test."""

    name: str
    label: str
    store: StoreKind
    abilities: frozenset[Ability]
    client_command: tuple[str, ...]
    worker_command: tuple[str, ...]
    # Where its version is looked up: a Python distribution or a folder under node_modules.
    distribution: str
    settings: tuple[str, ...]
    keeps: str
    # Passed to its client and its worker: a Node program reads its settings from here.
    environment: Mapping[str, str]
    # Sizes the first preload only; later rounds use what was measured.
    drain_guess_per_second: int

    def worker_environment(self, address: str) -> Mapping[str, str]:
        """The variable with the store's address. Coatcheck has its own, the others use ours."""
        return {
            **self.environment,
            "BENCH_ADDRESS": address,
            "COATCHECK_DATABASE_URL": address,
        }


@dataclass(frozen=True)
class Enqueued:
    """How many jobs were durably accepted, in which time."""

    jobs: int
    seconds: float


@dataclass(frozen=True)
class Kept:
    """What the store still has of finished jobs after a drain."""

    records: int
    results: int


class Client(Protocol):
    """The submitting side of a contender. `address` is a PostgreSQL DSN or a Redis URL."""

    async def open(self, address: str) -> None:
        """Connects. Called again, after `close`, for each scenario's fresh store."""

    async def install(self) -> None:
        """Creates the contender's own tables in an empty database."""

    async def submit(self, number: int) -> object:
        """Submits one job and returns what `wait` needs, once the store has accepted it."""

    async def enqueue_concurrently(self, in_flight: int, seconds: float) -> Enqueued:
        """Keeps `in_flight` single submits going for `seconds`."""

    async def enqueue_bulk(self, jobs: int, seconds_max: float) -> Enqueued:
        """Submits `jobs` by the contender's own bulk API, or as many as fit into the time."""

    async def unfinished(self) -> int:
        """How many jobs the store holds that have not ended yet."""

    async def kept(self) -> Kept:
        """How many finished jobs the store still knows, and how many results."""

    async def close(self) -> None: ...


@runtime_checkable
class WaitingClient(Protocol):
    """A client whose contender has an API to wait for a job's end."""

    async def wait(self, submitted: object) -> None: ...


@runtime_checkable
class ClaimCostClient(Protocol):
    """A client that can time its contender's claim on an empty history and on a long one."""

    async def write_history(self, finished_rows: int) -> None:
        """Fills an empty store with finished jobs."""

    async def claim_cost(self) -> float:
        """Loads a queue and claims from it in full batches; microseconds per claimed job."""
