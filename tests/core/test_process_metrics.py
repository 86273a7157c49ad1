"""The metrics of many processes in one database: added up, never twice, and never going back."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import asyncpg
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from coatcheck.core.process_metrics import ProcessMetrics, fold
from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.telemetry import snapshots
from coatcheck.telemetry.snapshots import Snapshot
from tests.db.lossy_proxy import LossyProxy
from tests.waiting import eventually_async


class KeptSnapshot(Snapshot):
    """One that can be asked for after it was forgotten."""


class Process:
    """One that counts jobs and runs some, and puts that into the database when it is told to."""

    def __init__(self, dsn: str) -> None:
        registry = CollectorRegistry()
        self.jobs = Counter("jobs", "Jobs.", registry=registry)
        self.running = Gauge("running", "Now.", registry=registry)
        self._database = Database.of_worker(dsn)
        self._taken: list[weakref.ref[KeptSnapshot]] = []
        self.metrics = ProcessMetrics(self._database, "worker", self._take)
        self._registry = registry

    def _take(self) -> KeptSnapshot:
        taken = KeptSnapshot(snapshots.take_snapshot(self._registry, {}))
        self._taken.append(weakref.ref(taken))
        return taken

    @property
    def kept(self) -> int:
        """How many of the snapshots that were taken are still in memory."""
        gc.collect()
        return sum(taken() is not None for taken in self._taken)

    async def end(self) -> None:
        await self.metrics.__aexit__()
        await self._database.close()


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="tests")
    yield line
    await line.close()


async def shown(process: Process) -> tuple[float, float]:
    """How many jobs all have counted, and how many they run."""
    whole: Snapshot = await process.metrics.of_all()
    return whole["jobs"].samples["jobs_total", ()], whole["running"].samples["running", ()]


async def test_whichever_process_is_asked_it_shows_the_sum_of_all(dsn: str) -> None:
    first, second = Process(dsn), Process(dsn)
    first.jobs.inc(3)
    first.running.set(1)
    second.jobs.inc(4)
    second.running.set(2)
    await first.metrics.push()
    assert await shown(second) == (7, 3)
    second.jobs.inc()
    assert await shown(second) == (8, 3)
    # What one server has shown, the next one must not take back.
    assert await shown(first) == (8, 3)
    await first.end()
    await second.end()


async def test_what_an_ended_process_counted_stays_and_what_it_ran_is_gone(
    dsn: str, line: Connection
) -> None:
    first, second = Process(dsn), Process(dsn)
    first.jobs.inc(3)
    first.running.set(1)
    second.jobs.inc(4)
    await first.end()
    assert await shown(second) == (7, 0)
    assert await fold(line) == 1
    assert await shown(second) == (7, 0)
    assert await fold(line) == 0
    await second.end()
    assert await fold(line) == 1
    last = Process(dsn)
    assert await shown(last) == (7, 0)
    await last.end()


async def test_two_that_fold_at_once_count_each_process_once(dsn: str, line: Connection) -> None:
    for _ in range(5):
        process = Process(dsn)
        process.jobs.inc(2)
        await process.end()
    rival = Connection(dsn, name="rival")
    folded = await asyncio.gather(fold(line), fold(rival))
    await rival.close()
    assert sum(folded) == 5
    last = Process(dsn)
    assert await shown(last) == (10, 0)
    await last.end()


async def test_a_process_that_was_taken_for_gone_goes_on_where_it_was(
    dsn: str, line: Connection
) -> None:
    sleeper, other = Process(dsn), Process(dsn)
    sleeper.jobs.inc(3)
    await sleeper.metrics.push()
    assert await fold(line, gone_seconds=0) == 1
    assert await shown(other) == (3, 0)

    sleeper.jobs.inc(2)
    sleeper.running.set(1)
    assert await shown(sleeper) == (5, 1)
    sleeper.jobs.inc(1)
    assert await shown(sleeper) == (6, 1)
    assert await shown(other) == (6, 1)
    assert await fold(line, gone_seconds=0) == 2
    assert await shown(sleeper) == (6, 1)
    await sleeper.end()
    await other.end()


async def test_a_push_whose_answer_was_lost_counts_if_it_was_committed(
    dsn: str, line: Connection
) -> None:
    async with LossyProxy.before(dsn) as proxy:
        process = Process(proxy.dsn)
        process.jobs.inc(3)
        await process.metrics.push()
        process.jobs.inc(2)
        ((name,),) = await line.fetch("SELECT process FROM process_metrics WHERE kind <> 'gone'")
        proxy.lose_answers(after=name.bytes)
        pushing = asyncio.create_task(process.metrics.push())

        async def committed() -> bool:
            return bool(await line.fetch("SELECT FROM process_metrics WHERE push = 2"))

        await eventually_async(committed, "the second push is committed")
        proxy.cut()
        with pytest.raises(OutcomeUnknown):
            await pushing
        assert await fold(line, gone_seconds=0) == 1

        process.jobs.inc(1)
        assert await shown(process) == (6, 0)
        await process.end()


async def test_a_push_that_was_overtaken_changes_nothing(dsn: str, line: Connection) -> None:
    process = Process(dsn)
    process.jobs.inc(3)
    await process.metrics.push()
    early = snapshots.encoded({})
    connection = await asyncpg.connect(dsn)
    name = await connection.fetchval("SELECT process FROM process_metrics WHERE kind <> 'gone'")
    await connection.close()
    late = {"process": name, "push": 1, "samples": early, "ended": False}
    assert not await sql.fetch(line, "process_metrics/push", **late)
    assert await shown(process) == (3, 0)
    await process.end()


async def test_a_process_that_fell_silent_is_not_believed_about_the_present(dsn: str) -> None:
    silent, other = Process(dsn), Process(dsn)
    silent.jobs.inc(3)
    silent.running.set(9)
    await silent.metrics.push()
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE process_metrics SET pushed_at = now() - interval '1 minute'")
    await connection.close()
    assert await shown(other) == (3, 0)
    await silent.end()
    await other.end()


async def test_what_could_not_be_sent_is_not_kept_while_the_database_is_away(
    dsn: str, line: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, other = Process(dsn), Process(dsn)
    process.jobs.inc(3)
    await process.metrics.push()

    async def away(*_: object, **__: object) -> bool:
        raise DatabaseUnavailable("it is away")

    with monkeypatch.context() as outage:
        outage.setattr(sql, "fetch", away)
        for _ in range(20):
            process.jobs.inc()
            with pytest.raises(DatabaseUnavailable):
                await process.metrics.push()
    assert process.kept == 1, "the push that was answered, and no other"

    assert await fold(line, gone_seconds=0) == 1
    assert await shown(process) == (23, 0)
    assert await shown(other) == (23, 0)
    await process.end()
    await other.end()
