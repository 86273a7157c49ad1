"""The metrics of a whole deployment, gathered in its database.

Every process writes its samples to a row of its own, every few seconds and when it ends. A reader
pushes its own samples first, and then adds up all rows: so two servers that are asked one after the
other show the same count, and a count never goes back. Prometheus would take that for a restart,
and count everything once more.

A process that has ended is folded: one transaction adds its counts to the row of ended processes.
So is one that has been silent for an hour. If it was only asleep, its next push finds no row; it
then asks which of its pushes was the last to be counted, and begins anew, under another name, with
the counts after that. A killed process loses the few seconds that it had not pushed.

The counts of jobs by organisation go to the roll-ups, every few seconds and when a process stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from coatcheck.core.queries import roll_ups, sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.database import Database
from coatcheck.db.queries import Row
from coatcheck.domain.errors import CoatcheckError, DatabaseUnavailable, OutcomeUnknown
from coatcheck.telemetry import metrics, snapshots
from coatcheck.telemetry.job_stats import job_stats_of
from coatcheck.telemetry.snapshots import Snapshot

_log = logging.getLogger(__name__)

PUSH_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 30.0
"""For this long, gauges of a silent process are still believed."""
GONE_SECONDS: Final = 3_600.0
"""A process that has been silent for this long is folded."""
REMEMBERED_SECONDS: Final = 7 * 86_400.0
"""For how long the last counted push of a folded process is remembered."""
FOLDED_ROWS_MAX: Final = 100
_LABEL_ROWS_MAX: Final = 1_000
"""How many sets of labels a metric of ended processes keeps."""
_LAST_PUSH_SECONDS_MAX: Final = 5.0

Take = Callable[[], Snapshot]
"""Takes a snapshot of everything that the process has counted since it began."""


class ProcessMetrics:
    """Pushes one process's samples to the database, and reads the sum. One per process.

    >>> async with ProcessMetrics(database, "worker", take): ...
    """

    def __init__(self, database: Database, kind: str, take: Take) -> None:
        self._kind = kind
        self._take = take
        self._db = database.pooled("metrics")
        self._turn = asyncio.Lock()
        self._process = uuid4()
        self._pushes = 0
        self._is_known = False
        self._baseline: Snapshot = {}
        self._sent: dict[int, Snapshot] = {}
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ProcessMetrics:
        self._loop = asyncio.create_task(self._run(), name="metrics")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_PUSH_SECONDS_MAX):
                await self.push(ended=True)
        except (CoatcheckError, TimeoutError) as error:
            _log.info("the last metrics could not be stored: %s", error)

    async def push(self, *, ended: bool = False) -> None:
        """Write this process's samples to the database."""
        async with self._turn:
            await self._push(ended=ended)

    async def of_all(self) -> Snapshot:
        """The sum over all processes, this one as it is now."""
        await self.push()
        said = await sql.fetch(self._db, "process_metrics/read", silent_seconds=SILENT_SECONDS)
        # With many processes the sum takes long enough to delay other responses.
        return await asyncio.to_thread(_sum, said)

    async def _push(self, *, ended: bool) -> None:
        taken = self._take()
        if await self._put(taken, ended=ended):
            return
        counted = await sql.value(self._db, "process_metrics/folded_push", process=self._process)
        # If the database no longer knows: an answered push was counted, as far as we know.
        answered = min(self._sent, default=None)
        last = counted if counted is not None and counted in self._sent else answered
        if last is not None:
            self._baseline = self._sent[last]
        _log.info("this process was taken for dead; it continues as a new one")
        self._process = uuid4()
        self._is_known = False
        self._sent.clear()
        await self._put(taken, ended=ended)

    async def _put(self, taken: Snapshot, *, ended: bool) -> bool:
        """Write the samples. Returns False if this process was folded."""
        samples = snapshots.encoded(snapshots.less(taken, self._baseline))
        if not self._is_known:
            with self._sending(taken) as push:
                await sql.fetch(
                    self._db,
                    "process_metrics/begin",
                    process=self._process,
                    kind=self._kind,
                    push=push,
                    samples=samples,
                )
            self._is_known = True
            self._forget_before(push)
            if not ended:
                return True
        with self._sending(taken) as push:
            is_there = await sql.fetch(
                self._db,
                "process_metrics/push",
                process=self._process,
                push=push,
                samples=samples,
                ended=ended,
            )
        if not is_there:
            del self._sent[push]
            return False
        self._forget_before(push)
        return True

    @contextmanager
    def _sending(self, taken: Snapshot) -> Iterator[int]:
        """Number a push and remember its samples: it may be the one that is counted. A push that
        never reached the database is dropped, or they would pile up while it is down."""
        self._pushes += 1
        push = self._pushes
        self._sent[push] = taken
        try:
            yield push
        except DatabaseUnavailable:
            del self._sent[push]
            raise

    def _forget_before(self, push: int) -> None:
        """Drop the samples of earlier pushes: this one or a later one is counted in the end."""
        self._sent = {number: sent for number, sent in self._sent.items() if number >= push}

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PUSH_SECONDS)
            try:
                await self.push()
            except CoatcheckError as error:
                _log.info("metrics wait for the database: %s", error)
            except Exception:  # noqa: BLE001 - metrics must not end the process that they describe
                _log.exception("metrics could not be stored")


def _sum(said: Iterable[Row]) -> Snapshot:
    """The sum of what processes said. The gauges of one that is not alive no longer count."""
    return snapshots.merged(
        whole if each["alive"] else snapshots.counts(whole)
        for each in said
        for whole in (snapshots.decoded(each["samples"]),)
    )


async def fold(
    db: Connection, *, gone_seconds: float = GONE_SECONDS, rows_max: int = FOLDED_ROWS_MAX
) -> int:
    """Add the counts of ended processes to the row of all ended ones. Returns how many."""

    async def lock_and_fold(connection: RawConnection) -> int:
        async with connection.transaction():
            gone = await sql.value(connection, "process_metrics/lock_totals")
            ended = await sql.fetch(
                connection,
                "process_metrics/lock_ended",
                silent_seconds=gone_seconds,
                rows_max=rows_max,
            )
            if ended:
                counts = (snapshots.counts(snapshots.decoded(row["samples"])) for row in ended)
                whole = snapshots.merged([snapshots.decoded(gone), *counts])
                await sql.fetch(
                    connection,
                    "process_metrics/fold",
                    whole=snapshots.encoded(snapshots.bounded(whole, _LABEL_ROWS_MAX)),
                    processes=[row["process"] for row in ended],
                    remember_seconds=REMEMBERED_SECONDS,
                )
            return len(ended)

    return await db.run(lock_and_fold)


FLUSH_SECONDS: Final = 5.0
_LAST_FLUSH_SECONDS_MAX: Final = 5.0
"""A stopping process waits no longer than this: it has more important things to write."""


class JobStatsRecorder:
    """Flushes the process's counts for a database. An engine has one, and each worker: the first
    whose turn comes leaves the others nothing to do. Its owner closes the connection."""

    def __init__(self, db: Connection) -> None:
        self._job_stats = job_stats_of(db.database_url)
        self._db = db
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="roll-ups")

    async def stop(self) -> None:
        """Flush the rest, if the database answers soon, and stop."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._stopping.set()
        try:
            async with asyncio.timeout(_LAST_FLUSH_SECONDS_MAX):
                # Not cancelled before: a flush that was cut off might be added a second time.
                await task
                await self._flush_if_possible()
        except TimeoutError:
            _log.info("the last statistics could not be added in time")

    async def flush(self) -> None:
        """Flush the counts so far. A flush that another recorder has begun ends before this."""
        async with self._job_stats.flushing():
            await self._flush()

    async def _flush(self) -> None:
        self._job_stats.flushed_at = time.monotonic()
        counted = self._job_stats.take()
        if not counted:
            return
        try:
            await roll_ups.add(self._db, counted)
            metrics.record_job_stats(counted)
        except DatabaseUnavailable as error:
            self._job_stats.give_back(counted)
            _log.info("statistics wait for the database: %s", error)
        except OutcomeUnknown:
            # It may have been added. A missing count misleads nobody; a double one would.
            metrics.record_job_stats(counted)
            _log.info("some seconds of statistics may be lost")

    async def _run(self) -> None:
        while not await self._is_stopped_within(FLUSH_SECONDS):
            if time.monotonic() - self._job_stats.flushed_at < FLUSH_SECONDS * 0.9:
                continue
            await self._flush_if_possible()

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def _flush_if_possible(self) -> None:
        try:
            await self.flush()
        except Exception:  # noqa: BLE001 - statistics must not end the process that they describe
            _log.exception("statistics could not be added")
