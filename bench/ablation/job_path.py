"""Drives jobs through the product's own exchange, without its clocks: nothing runs in between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

from bench.ablation.amounts import Amounts
from bench.ablation.variants import Variant, service
from coatcheck import Engine, Lane, Settings
from coatcheck.core.queries.leases import FinishedJob
from coatcheck.db.database import Database
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, LanePolicy
from coatcheck.worker.exchange_loop import ExchangeLoop, PollInterval
from coatcheck.worker.lease import LeaseRenewer
from coatcheck.worker.slots import SlotPool

_AN_HOUR = 3_600.0
_KEEP_SECONDS = 86_400
_RESULT = b'{"n":1}'
_FLUSH = "SELECT pg_stat_force_next_flush()"
"""Else a session adds what it has counted to the counts of all once a second."""


class WrongBatchError(RuntimeError):
    """An exchange did not claim as many jobs as it should."""


class JobPath:
    """A worker's exchange, and the engine that submits jobs for it, on the same connections."""

    def __init__(self, database: Database, renewer: LeaseRenewer, amounts: Amounts) -> None:
        self._database = database
        self._amounts = amounts
        endpoints = {each.name: each for each in service.endpoints.values()}
        # Started by nobody: it has no listener, and writes no statistics.
        self._engine = Engine(Settings(database_url=database.url), [service], database=database)
        self._held: list[ClaimedJob] = []
        self._exchange = ExchangeLoop(
            database.exchange,
            database.claim,
            renewer,
            database.notifier,
            {Lane.STANDARD: SlotPool(amounts.batch, _must_not_be_called)},
            endpoints,
            PollInterval(_AN_HOUR, _AN_HOUR),
            keep_completed_seconds=_KEEP_SECONDS,
            keep_failed_seconds=_KEEP_SECONDS,
            accept=self._held.extend,
            on_ended={},
        )

    async def submit(self, variant: Variant) -> None:
        await variant.submit(self._engine, self._amounts)
        await self._database.notifier.drain()

    async def exchange(self, times: int) -> None:
        """Complete the jobs that are held and claim a batch, so many times."""
        for _ in range(times):
            await self._exchange_once()
            if len(self._held) != self._amounts.batch:
                raise WrongBatchError(
                    f"an exchange for {self._amounts.batch} jobs claimed {len(self._held)}"
                )

    async def complete(self) -> None:
        """Complete the jobs that are held. There must be no others."""
        await self._exchange_once()
        if self._held or self._exchange.rejected:
            raise WrongBatchError("more jobs were left, or results were refused")

    async def flush_counts(self) -> None:
        """Have PostgreSQL add what the exchanges have counted to its statistics of tables."""
        for connection in (self._database.exchange, self._database.claim):
            await connection.fetch(_FLUSH)

    async def close(self) -> None:
        await self._engine.close()

    async def _exchange_once(self) -> None:
        for job in self._held:
            self._exchange.complete(FinishedJob(job, _RESULT, 0.001))
        self._held.clear()
        await self._exchange.serve_once()
        await self._exchange.recorded()
        await self._database.notifier.drain()


@asynccontextmanager
async def path_of_jobs(address: str, amounts: Amounts) -> AsyncIterator[JobPath]:
    lanes = {
        **DEFAULT_POLICIES,
        # No heartbeat: the lease lasts.
        Lane.STANDARD: LanePolicy(3, _AN_HOUR, amounts.batch, reserved_percent=0),
    }
    async with Database.of_engine(address) as database:
        renewer = LeaseRenewer(
            database.heartbeat,
            database.heartbeat,
            lanes,
            name="bench",
            version="0",
            endpoints=[],
            on_cancel=_must_not_be_called,
            on_lost=_must_not_be_called,
            on_held_again=_ignored,
            recording_failed_for=float,
        )
        await renewer.register()
        path = JobPath(database, renewer, amounts)
        try:
            yield path
        finally:
            await path.close()


def _must_not_be_called(*_: object) -> NoReturn:
    raise AssertionError("no job is run, and no lease is lost")


def _ignored() -> None:
    """The first registration holds nothing."""
