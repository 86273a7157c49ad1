"""The ledger of what a job costs PostgreSQL in its common path. It fails when that changes.

The numbers of ``LEDGER`` are counted, not timed, so a busy machine does not change them. A change
that crosses one, upwards or downwards, changes the number in the same commit, and the body of the
commit says why. Run

    pytest tests/db/test_cost_ledger.py

A test that fails shows the numbers that differ, and what each phase costs now, ready to be copied.
Prefer to make a feature that is not used cost nothing to changing a number that all jobs pay.

``costs.py`` says what each number is, how it is counted, and which have a tolerance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, NoReturn
from uuid import UUID

import pytest

from coatcheck.core import Engine
from coatcheck.core.queries.leases import FinishedJob
from coatcheck.core.ready_notification import named_job, naming
from coatcheck.core.submission import Preparer, Submission
from coatcheck.core.submitter import Submitter
from coatcheck.db.database import Database
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane, LanePolicy
from coatcheck.domain.limits import CLAIM_ROWS_MAX
from coatcheck.domain.states import State
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.worker.exchange_loop import ExchangeLoop, PollInterval
from coatcheck.worker.lease import LeaseRenewer
from coatcheck.worker.slots import SlotPool
from tests.db import edge_guard
from tests.db.costs import Cost, CostMeter, CountingProxy, Work
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected


@dataclass(frozen=True)
class Scenario:
    """So many jobs that are submitted, claimed and completed together.

    One job alone is submitted at a quiet time, claimed by its name and completed with the
    notification, by a worker that knows of nothing else. Many jobs are submitted at once; one
    exchange completes those before and claims these.
    """

    jobs: int
    has_key: bool
    life: Cost
    """From the submission to the notification that they have ended."""
    reading: Cost
    """Reading each of them by its id once they have ended."""


READING_ONE: Final = Cost(statements=1, round_trips=1, commits=1, buffers=2)
READING_500: Final = Cost(statements=1, round_trips=1, commits=1, buffers=1_500)
LEDGER: Final[Mapping[str, Scenario]] = {
    "one job": Scenario(
        jobs=1,
        has_key=False,
        life=Cost(
            statements=3,
            round_trips=3,
            commits=3,
            inserted=5,
            updated_hot=2,
            updated_not_hot=0,
            deleted=2,
            index_entries=9,
            wal_records=23,
            wal_bytes=2_090,
            buffers=37,
        ),
        reading=READING_ONE,
    ),
    "one job with an idempotency key": Scenario(
        jobs=1,
        has_key=True,
        life=Cost(
            statements=3,
            round_trips=3,
            commits=3,
            inserted=5,
            updated_hot=2,
            updated_not_hot=0,
            deleted=2,
            index_entries=10,
            wal_records=25,
            wal_bytes=2_260,
            buffers=41,
        ),
        reading=READING_ONE,
    ),
    "500 jobs": Scenario(
        jobs=500,
        has_key=False,
        life=Cost(
            statements=5,
            round_trips=5,
            commits=5,
            inserted=515,
            updated_hot=894,
            updated_not_hot=108,
            deleted=9,
            index_entries=1_245,
            wal_records=3_410,
            wal_bytes=409_000,
            buffers=9_390,
        ),
        reading=READING_500,
    ),
    "500 jobs with idempotency keys": Scenario(
        jobs=500,
        has_key=True,
        life=Cost(
            statements=5,
            round_trips=5,
            commits=5,
            inserted=515,
            updated_hot=911,
            updated_not_hot=91,
            deleted=9,
            index_entries=1_802,
            wal_records=4_460,
            wal_bytes=491_000,
            buffers=13_050,
        ),
        reading=READING_500,
    ),
}

LIVES_LEARNT: Final = 3
"""These also prepare the statements of every session and fill its caches."""
LIVES_PER_ROUND: Final = 3
LIVES_MEASURED: Final = 12
READINGS: Final = 3
ROUNDS_MAX: Final = 12
ENDPOINTS: Final = LIVES_LEARNT + LIVES_PER_ROUND * ROUNDS_MAX
ORG: Final = "acme"
AN_HOUR: Final = 3_600.0
LANES: Final = {
    **DEFAULT_POLICIES,
    Lane.STANDARD: LanePolicy(3, AN_HOUR, CLAIM_ROWS_MAX, reserved_percent=0),
}
WAL_NUMBERS: Final = {"wal_records", "wal_bytes"}


async def do_nothing() -> None:
    """The handler of every endpoint."""


def fail(*_: object) -> NoReturn:
    raise AssertionError("this does not happen in the common path")


def ignore() -> None:
    pass


class JobPath:
    """Drives jobs through the product's own code, without its clocks: nothing runs in between."""

    def __init__(self, scenario: Scenario, database: Database, renewer: LeaseRenewer) -> None:
        self._scenario = scenario
        self._database = database
        # Each life has an endpoint of its own: no claim passes the dead entries of those before, as
        # many as PostgreSQL has not cleaned up.
        service = Service("work")
        for number in range(ENDPOINTS):
            service.post(f"/life-{number:02}")(do_nothing)
        self._endpoints = {each.name: each for each in service.endpoints.values()}
        self._lives = enumerate(self._endpoints)
        self._preparer = Preparer(self._endpoints, LANES)
        # Started by nobody: it has no listener, and writes no statistics.
        self._engine = Engine(Settings(database_url=database.url), database=database)
        self._held: list[ClaimedJob] = []
        self._ended: Sequence[str] = []
        self._exchange = ExchangeLoop(
            database.exchange,
            database.claim,
            renewer,
            database.notifier,
            {Lane.STANDARD: SlotPool(CLAIM_ROWS_MAX, fail)},
            self._endpoints,
            PollInterval(AN_HOUR, AN_HOUR),
            keep_completed_seconds=86_400,
            keep_failed_seconds=86_400,
            accept=self._held.extend,
            on_ended={},
            quiet_seconds=0.0,
        )

    @property
    def life(self) -> Mapping[str, Work]:
        """The phases of a life, by name."""
        if self._scenario.jobs == 1:
            return {"submit": self.submit, "claim": self.claim, "complete": self.exchange}
        return {"submit": self.submit, "exchange": self.exchange}

    async def look(self) -> None:
        """Find nothing: the worker then knows that nothing waits."""
        await self._exchange.serve_once()

    async def submit(self) -> None:
        """Begin a life: submit its jobs, all at once."""
        number, endpoint = next(self._lives)
        if self._scenario.jobs > 1:
            self._exchange.exclude(self._endpoints.keys() - {endpoint})
        chance = Random(number)
        jobs = [
            self._preparer.prepare(
                Submission(
                    endpoint,
                    b'{"number": 1}',
                    org=ORG,
                    idempotency_key=f"key {number:02} {at:03}" if self._scenario.has_key else None,
                ),
                # As new_id makes it, a millisecond after those of the life before.
                UUID(int=0x19A_0000_0000 + number << 80 | chance.getrandbits(80)),
            )
            for at in range(self._scenario.jobs)
        ]
        # A new one takes the time to be quiet, however soon this follows the last submission.
        submitter = Submitter(self._database.submit, self._database.read, self._database.notifier)
        await asyncio.gather(*map(submitter.submit, jobs))
        await self._database.notifier.drain()
        self._submitted = jobs[0]

    async def claim(self) -> None:
        """Claim the job that the notification of its submission names."""
        job = named_job(naming(self._submitted))
        assert job is not None
        self._exchange.look_for_job(job)
        await self._exchange.serve_once()

    async def exchange(self) -> None:
        """Complete the jobs that are held, and claim others."""
        if self._held:
            self._ended = [to_text(job.uuid) for job in self._held]
        for job in self._held:
            self._exchange.complete(FinishedJob(job, b'{"ok": true}', 0.0))
        self._held.clear()
        await self._exchange.serve_once()
        await self._exchange.recorded()
        await self._database.notifier.drain()

    async def read(self) -> None:
        """Read the jobs that were completed last."""
        views = await asyncio.gather(*(self._engine.get(job, org=ORG) for job in self._ended))
        assert [view.state for view in views] == [State.COMPLETED] * self._scenario.jobs

    async def close(self) -> None:
        await self._engine.close()


@asynccontextmanager
async def path_of_jobs(
    dsn: str, scenario: Scenario, *statements: str
) -> AsyncIterator[tuple[CostMeter, JobPath]]:
    """The path of jobs on a database as the product has it, apart from ``statements``."""
    async with connected(dsn) as connection, CountingProxy.before(dsn) as proxy:
        await edge_guard.remove(connection)
        await switch_autovacuum_off(connection)
        for statement in statements:
            await connection.execute(statement)
        async with Database.of_engine(proxy.dsn) as database:
            renewer = LeaseRenewer(
                database.heartbeat,
                database.heartbeat,
                LANES,
                name="ledger",
                version="0",
                endpoints=[],
                on_cancel=fail,
                on_lost=fail,
                on_held_again=ignore,
                recording_failed_for=float,
            )
            await renewer.register()
            path = JobPath(scenario, database, renewer)
            yield CostMeter(proxy, database, connection), path
            await path.close()


async def switch_autovacuum_off(connection: AsyncpgConnection) -> None:
    """It would clean up at a time of its own."""
    tables = await connection.fetch(
        "SELECT oid::regclass::text FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    for (table,) in tables:
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")


@dataclass(frozen=True)
class Measured:
    """The costs of the phases of a life, and of reading."""

    phases: Mapping[str, Cost]
    reading: Cost

    @property
    def life(self) -> Cost:
        return sum(self.phases.values(), start=Cost())

    def __str__(self) -> str:
        costs = {**self.phases, "life": self.life, "reading": self.reading}
        return "\n".join(f"{name}={cost}," for name, cost in costs.items())


async def measure(dsn: str, scenario: Scenario, *statements: str) -> Measured:
    """What a scenario costs on a database that ``statements`` have changed."""
    lives: list[dict[str, Cost]] = []
    async with path_of_jobs(dsn, scenario, *statements) as (meter, path):
        await path.look()
        for _ in range(LIVES_LEARNT):
            for name, phase in path.life.items():
                await meter.learn(name, phase)
        for _ in range(ROUNDS_MAX):
            await meter.can_clean_up()
            for _ in range(LIVES_PER_ROUND):
                images = meter.page_images
                life = {name: await meter.measure(name, work) for name, work in path.life.items()}
                if meter.page_images == images:
                    lives.append(life)
            if len(lives) >= LIVES_MEASURED:
                break
        # A dead version costs a reader a page, and how many there are depends on page splits.
        await meter.vacuum()
        await path.read()
        readings = [await meter.measure("reading", path.read) for _ in range(READINGS)]
    assert len(lives) >= LIVES_MEASURED, "checkpoints disturbed too many of them"
    return Measured(
        {name: Cost.undisturbed([life[name] for life in lives]) for name in lives[0]},
        Cost.undisturbed(readings),
    )


async def wal_level(dsn: str) -> str:
    async with connected(dsn) as connection:
        level: str = await connection.fetchval("SHOW wal_level")
        return level


@pytest.mark.parametrize("name", LEDGER)
async def test_a_job_costs_what_the_ledger_declares(name: str, dsn: str) -> None:
    scenario = LEDGER[name]
    measured = await measure(dsn, scenario)
    found = measured.life.differences(scenario.life), measured.reading.differences(scenario.reading)
    level = await wal_level(dsn)
    if level != "replica":
        for differences in found:
            for number in WAL_NUMBERS & differences.keys():
                del differences[number]
    assert found == ({}, {}), f"the life and the reading of {name}\n{measured}"
    if level != "replica":
        pytest.skip(f"the numbers of the write-ahead log are for wal_level replica, not {level}")


async def test_an_index_that_is_not_declared_shows(dsn: str) -> None:
    declared = LEDGER["one job"]
    measured = await measure(dsn, declared, "CREATE INDEX ON jobs (created_at)")
    found = measured.life.differences(declared.life)
    entries = declared.life.index_entries
    assert found["index_entries"] == f"{entries:,} declared, {entries + 1:,} measured"


async def test_an_index_of_a_column_that_changes_shows_in_every_number_that_it_changes(
    dsn: str,
) -> None:
    declared = LEDGER["one job"]
    measured = await measure(dsn, declared, "CREATE INDEX ON jobs (updated_at)")
    found = measured.life.differences(declared.life)
    hot = {"updated_hot", "updated_not_hot"}
    assert found.keys() == {*hot, "index_entries", "wal_records", "wal_bytes", "buffers"}, measured
