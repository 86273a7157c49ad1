"""The built-in service that analyses archives in a worker.

While its analysis runs, an archive is one file in a private folder on this machine's disk. It is
not unpacked: parsers read it in place. The folder is removed however the analysis ends. After a
kill -9 another worker on the same machine removes it, either one that is running or the next one
that starts.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, cast

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import stream_pieces
from coatcheck.core.queries import inputs
from coatcheck.crash import crash_point
from coatcheck.db.database import Database
from coatcheck.domain.bounds import Bound
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    FailJob,
    JobCancelled,
    OutcomeUnknown,
    RetryLater,
)
from coatcheck.domain.inputs import HeldCopy, Mechanism
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import Cancelled, Completed, Failed, Outcome, Retryable
from coatcheck.job import Job
from coatcheck.products.graphs import naming
from coatcheck.products.graphs.analysis import (
    FILE_WALL_SECONDS,
    AnalysisOrder,
    analyse,
    disk_unavailable,
)
from coatcheck.products.graphs.analysis_request import (
    RESULT_ARTIFACT,
    RESULT_INLINE_BYTES_MAX,
    AnalysisRequest,
    GraphFailure,
    StoredGraphResult,
)
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.settings.parsers import GRAPH_ENDPOINTS, GRAPH_OPERATIONS, GRAPHS_SERVICE
from coatcheck.worker.executors.isolated import FolderNotMade, IsolatedExecutor
from coatcheck.worker.input_disposal import InputDisposal
from coatcheck.worker.reports import JobReporter
from coatcheck.worker.temp_dirs import TempRoot, disk_id
from coatcheck.worker.worker import Worker

_log = logging.getLogger(__name__)

RUN_SECONDS_MAX: Final = 30 * 60.0
"""The time limit of an analysis. A longer one fails: another attempt would take as long."""
NICENESS_MAX: Final = 6
"""The highest niceness of an analysis: it gets a quarter of the CPU share of a handler."""
_WEIGHT_STEP: Final = 1.25
"""The factor by which each level of niceness lowers a process's share of a contended core."""
_ENDING_SECONDS_MAX: Final = 60.0
"""The time that an analysis may take to stop after it was asked to."""
ARCHIVE: Final = "archive.zip"
CLEANUP_SECONDS: Final = 15.0

Handler = Callable[[Job, AnalysisRequest], Awaitable[StoredGraphResult]]


class GraphExecutor:
    """Analyses archives. A context manager around the worker's whole run.

    >>> async with GraphExecutor(settings, database) as graphs:
    ...     await graphs.worker().run()
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._db = database.pooled("archives")
        self._blobs = BlobContainer.open(settings.blob_url)
        self._disposal = InputDisposal(database, self._blobs)
        self._shares = CoreShares(_cores())
        self._temp_root: TempRoot | None = None
        self._cleanup: asyncio.Task[None] | None = None
        self._not_removed: list[HeldCopy] = []
        # Copies are found by the id of their disk. The host's name is for people.
        self._host = f"{socket.gethostname()}:{disk_id(settings.temp_dir)}"
        self.service = Service(GRAPHS_SERVICE, product="graphs")
        for operation in GRAPH_OPERATIONS:
            self.service.post(f"/{operation}", timeout=RUN_SECONDS_MAX + _ENDING_SECONDS_MAX)(
                self._handler(operation)
            )
        within = Service("coatcheck-analysis", product="graphs")
        within.post(
            "/analyse",
            isolated=True,
            timeout=RUN_SECONDS_MAX,
            memory_mb=settings.graphs_memory_mb,
        )(analyse)
        (self._analysis,) = within.endpoints.values()

    async def __aenter__(self) -> Self:
        self._temp_root = TempRoot(self._settings.temp_dir)
        self._cleanup = asyncio.create_task(self._clean_up_forever(), name="archives cleanup")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._cleanup is not None
        assert self._temp_root is not None
        self._cleanup.cancel()
        await asyncio.gather(self._cleanup, return_exceptions=True)
        await asyncio.to_thread(self._temp_root.close)
        await self._record_at_exit()
        await self._disposal.__aexit__(kind, error, trace)

    def worker(self) -> Worker:
        """A separate worker for archives, so that it claims only as many as it can analyse at a
        time and leaves the others to other workers."""
        lanes = {Lane.STANDARD: self._settings.graphs_concurrency}
        settings = replace(
            self._settings, lane_concurrency={lane: lanes.get(lane, 0) for lane in Lane}
        )
        ended = dict.fromkeys(GRAPH_ENDPOINTS, self._disposal.ended)
        name = f"{socket.gethostname()}:{os.getpid()}:{GRAPHS_SERVICE}"
        return Worker(settings, [self.service], name=name, on_ended=ended, database=self._database)

    def _handler(self, operation: str) -> Handler:
        async def handler(job: Job, request: AnalysisRequest) -> StoredGraphResult:
            return await self._run(operation, job, request)

        handler.__name__ = handler.__qualname__ = operation
        return handler

    # One job

    async def _run(self, operation: str, job: Job, request: AnalysisRequest) -> StoredGraphResult:
        assert self._temp_root is not None
        claimed = cast(JobReporter, job.reporter).claimed
        isolated = IsolatedExecutor(self._temp_root)
        copy: HeldCopy | None = None
        try:
            async with isolated.folder(job.id) as folder:
                place = f"{self._host}/{folder.relative_to(self._settings.temp_dir)}"
                # Set before the statement: if it is interrupted, the copy may have been recorded.
                copy = HeldCopy(claimed.org, claimed.uuid, place)
                seconds = await inputs.note_disk_copy(self._db, claimed, place)
                if seconds is None:
                    raise JobCancelled  # the lease is lost, and with it the right to report
                time_to_live = asyncio.timeout(seconds)
                run_limit = asyncio.timeout(RUN_SECONDS_MAX)
                try:
                    async with time_to_live, run_limit:
                        return await self._analyse(operation, job, request, folder, isolated)
                except TimeoutError:
                    if time_to_live.expired():
                        raise FailJob(_EXPIRED, code=GraphFailure.ARCHIVE_EXPIRED) from None
                    if run_limit.expired():
                        raise FailJob(_TOO_LONG, code=GraphFailure.ANALYSIS_TOO_LONG) from None
                    raise
        except FolderNotMade as error:
            raise _signal_for(error.outcome) from error
        finally:
            if copy is not None:
                await self._record_removed([copy])

    async def _analyse(
        self,
        operation: str,
        job: Job,
        request: AnalysisRequest,
        folder: Path,
        isolated: IsolatedExecutor,
    ) -> StoredGraphResult:
        await self._fetch(request, folder / ARCHIVE)
        crash_point("archive.downloaded")
        job.check_cancelled()
        with self._shares.allocate(job.org) as share:
            order = AnalysisOrder(
                operation=operation,
                archive=ARCHIVE,
                parsers=share.parsers,
                niceness=share.niceness,
                file_wall_seconds=FILE_WALL_SECONDS * share.slower,
                memory_mb=self._settings.graphs_memory_mb,
                entries_max=self._settings.archive_entries_max,
                unpacked_mb_max=self._settings.archive_unpacked_mb_max,
                sha256=request.sha256,
                started_at=datetime.now(UTC),
                external_calls=request.external_calls,
            )
            payload = msgspec.json.encode({"order": order})
            outcome = await isolated.run_in(folder, self._analysis, job, payload)
        if not isinstance(outcome, Completed):
            raise _signal_for(outcome)
        try:
            (folder / ARCHIVE).unlink()
            result = await naming.complete(self._settings, folder)
            if result.stat().st_size <= RESULT_INLINE_BYTES_MAX:
                return StoredGraphResult(
                    inline=msgspec.Raw(await asyncio.to_thread(result.read_bytes))
                )
        except OSError as error:
            raise disk_unavailable("the result", error) from error
        await job.attach(RESULT_ARTIFACT, result, media_type="application/json")
        return StoredGraphResult(artifact=RESULT_ARTIFACT)

    async def _fetch(self, request: AnalysisRequest, target: Path) -> None:
        digest = hashlib.sha256()
        try:
            with target.open("xb") as file:
                async for piece in stream_pieces(self._blobs, request.blob_key, request.pieces):
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
        except FileNotFoundError as error:
            raise FailJob(_EXPIRED, code=GraphFailure.ARCHIVE_EXPIRED) from error
        except BlobStoreUnavailable as error:
            raise RetryLater(
                "the blob store could not be read", code=GraphFailure.BLOB_STORE_UNAVAILABLE
            ) from error
        except OSError as error:
            raise disk_unavailable("the archive", error) from error
        if digest.hexdigest() != request.sha256:
            raise RetryLater(
                "the stored archive does not match its hash", code=GraphFailure.ARCHIVE_CORRUPT
            )

    # Cleanup of copies that were left on disk

    async def clean_up(self) -> None:
        """Remove the folders of this machine's dead workers, and record their copies as deleted."""
        assert self._temp_root is not None
        await asyncio.to_thread(self._temp_root.sweep)
        for copy in self._not_removed:
            await asyncio.to_thread(self._temp_root.remove, self._folder_of(copy))
        await self._record_missing()

    async def _record_missing(self) -> None:
        """Record as deleted every copy on this disk whose folder no longer exists."""
        again, self._not_removed = self._not_removed, []
        await self._record_removed(again)
        held = await inputs.open_disk_copies(self._db, self._host)
        missing = [copy for copy in held if not self._folder_of(copy).exists()]
        if missing:
            await self._record_deleted(missing, Mechanism.SWEEP)
            _log.info("removed the folders of %d dead analyses", len(missing))

    async def _clean_up_forever(self) -> None:
        while True:
            try:
                await self.clean_up()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("the cleanup of dead analyses is tried again later: %s", error)
            except Exception:  # noqa: BLE001 - it is tried again; nothing else depends on it
                _log.exception("the cleanup of dead analyses failed")
            await asyncio.sleep(CLEANUP_SECONDS)

    async def _record_at_exit(self) -> None:
        """Record the copies that were left for the next cleanup: their folders are removed now."""
        try:
            await self._record_missing()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("the next worker on this machine records the removed folders: %s", error)

    async def _record_removed(self, copies: Sequence[HeldCopy]) -> None:
        """Record our own copies as deleted; keep those that still exist for the next cleanup."""
        left = [copy for copy in copies if self._folder_of(copy).exists()]
        self._not_removed += left
        removed = [copy for copy in copies if copy not in left]
        if removed:
            await self._record_deleted(removed, Mechanism.WORKER)

    def _folder_of(self, copy: HeldCopy) -> Path:
        return self._settings.temp_dir / copy.place.removeprefix(f"{self._host}/")

    async def _record_deleted(self, copies: Sequence[HeldCopy], mechanism: Mechanism) -> None:
        try:
            await inputs.disk_copies_deleted(self._db, copies, mechanism)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.warning("removed folders are not recorded yet: %s", error)


Bound(
    "parsers",
    of="parsers of all archives that a worker analyses; archives that it analyses at a time",
    over="worker",
    value="its cores, and one more for each further archive",
    response="fewer parsers, and a lower priority the more archives an organisation has",
    settings=["graphs_concurrency"],
)


class Share(NamedTuple):
    """The share of the machine that one analysis gets."""

    parsers: int
    niceness: int

    @property
    def slower(self) -> float:
        """How many times longer the work may take next to equal work at normal priority."""
        return float(_WEIGHT_STEP**self.niceness)


class CoreShares:
    """Divides the cores of a worker among the analyses that it runs, fairly by organisation.

    An analysis gets the cores that no other has, and at least one. All together have as many
    parsers as there are cores, and one more for each further analysis. The more parsers an
    organisation has, the lower is the priority of the next. So all of its work together weighs
    little more than one process of another organisation, which gets its share as soon as it starts.
    If nobody else needs the cores, low priority costs nothing.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._parsers: Counter[str] = Counter()

    @contextmanager
    def allocate(self, org: str) -> Iterator[Share]:
        parsers = max(1, self._cores - self._parsers.total())
        self._parsers[org] += parsers
        niceness = round(math.log(self._parsers[org], _WEIGHT_STEP))
        try:
            yield Share(parsers, min(niceness, NICENESS_MAX))
        finally:
            self._parsers[org] -= parsers
            self._parsers += Counter()  # drops organisations that have none


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_EXPIRED: Final = "the archive's time to live ended before the analysis did"
_TOO_LONG: Final = f"the analysis took longer than {RUN_SECONDS_MAX / 60:g} minutes"


def _signal_for(outcome: Outcome) -> Exception:
    """The signal that a handler raises to end its job as the analysis ended."""
    match outcome:
        case Failed(code, message):
            return FailJob(message, code=code)
        case Retryable(code, message, after):
            return RetryLater(message, code=code, after=after)
        case Cancelled():
            return JobCancelled()
        case _:
            return RetryLater(
                "the analysis ended without a result", code=GraphFailure.ANALYSIS_ENDED
            )
