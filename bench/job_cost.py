"""What the jobs of a drain cost: CPU time by process, and what PostgreSQL wrote for them.

The processes are read right before the timed part and right after it, never during it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.process_tree import Tree
from bench.processes import Child

_MICROSECONDS = 1e6


@dataclass(frozen=True)
class ServerReading:
    """A database server at a moment.

    `serving` are its processes that work for the workers alone, `watching` those that work for the
    bench. `wal_bytes` and `transactions` are counted from any start; None if it has neither.
    """

    tree: Tree
    serving: frozenset[int]
    watching: frozenset[int] = frozenset()
    wal_bytes: int | None = None
    transactions: int | None = None

    def wal_since(self, before: "ServerReading") -> int:
        """Only of a server that has a write-ahead log."""
        assert self.wal_bytes is not None
        assert before.wal_bytes is not None
        return self.wal_bytes - before.wal_bytes


class ServerMeter(Protocol):
    """Reads a server while it is used by a contender."""

    async def read(self) -> ServerReading: ...


@dataclass(frozen=True)
class JobCost:
    """Microseconds of CPU, bytes and transactions per job."""

    worker_us: float
    serving_us: float
    """By the server's processes that the workers spoke to."""
    background_us: float
    """By its other processes, and by all of its processes that ended meanwhile."""
    wal_bytes: float | None
    transactions: float | None

    @property
    def total_us(self) -> float:
        return self.worker_us + self.serving_us + self.background_us


@dataclass(frozen=True)
class Reading:
    """The workers and their server at a moment."""

    workers: Tree
    server: ServerReading

    @classmethod
    async def take(cls, workers: Sequence[Child], meter: ServerMeter) -> "Reading":
        server = await meter.read()
        return cls(Tree.read([worker.process.pid for worker in workers]), server)

    def cost_since(self, before: "Reading", jobs: int) -> JobCost:
        """What each of `jobs` cost between two readings."""
        workers = self.workers.since(before.workers)
        server = self.server.tree.since(before.server.tree)
        serving = server.of(before.server.serving | self.server.serving)
        watching = server.of(before.server.watching | self.server.watching)
        return JobCost(
            worker_us=workers.total / jobs * _MICROSECONDS,
            serving_us=serving / jobs * _MICROSECONDS,
            background_us=(server.total - serving - watching) / jobs * _MICROSECONDS,
            wal_bytes=_per_job(before.server.wal_bytes, self.server.wal_bytes, jobs),
            transactions=_per_job(before.server.transactions, self.server.transactions, jobs),
        )


def _per_job(before: int | None, after: int | None, jobs: int) -> float | None:
    return None if before is None or after is None else (after - before) / jobs
