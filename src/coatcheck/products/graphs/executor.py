"""The built-in service that analyses archives, for a worker to serve beside its own.

An archive is on this machine's disk as one file, in a private folder, for as long as its analysis
runs. Nothing is unpacked: parsers read it in place. The folder is removed however the analysis
ends; after a kill -9, by the next worker of the machine that starts, or by one that runs.
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
from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.db.notifications import Notifier
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
from coatcheck.domain.outcome import Cancelled, Completed, Failed, Outcome, Retryable
from coatcheck.job import Job
from coatcheck.products.graphs import naming
from coatcheck.products.graphs.analysis import (
    FILE_WALL_SECONDS,
    AnalysisOrder,
    analyse,
    disk_unavailable,
)
from coatcheck.products.graphs.analysis_request import AnalysisRequest
from coatcheck.products.graphs.presenter import (
    RESULT_ARTIFACT,
    RESULT_INLINE_BYTES_MAX,
    StoredGraphResult,
)
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS, GRAPH_OPERATIONS, GRAPHS_SERVICE
from coatcheck.worker.executors.isolated import FolderNotMade, IsolatedExecutor
from coatcheck.worker.input_disposal import InputDisposal
from coatcheck.worker.reports import JobReporter
from coatcheck.worker.temp_dirs import TempRoot, disk_id
from coatcheck.worker.worker import Worker

_log = logging.getLogger(__name__)

RUN_SECONDS_MAX: Final = 30 * 60.0
"""What an analysis may take. One that takes longer fails: another attempt would take as long."""
NICENESS_MAX: Final = 6
"""Of analyses: a quarter of what a process has by default, which handlers are."""
_WEIGHT_STEP: Final = 1.25
"""By what factor each level of niceness lowers a process's share of a core that others want."""
_ENDING_SECONDS_MAX: Final = 60.0
"""What an analysis that is told to end may take to do so."""
ARCHIVE: Final = "archive.zip"
_TIDY_SECONDS: Final = 15.0

Handler = Callable[[Job, AnalysisRequest], Awaitable[StoredGraphResult]]


class GraphExecutor:
    """Analyses archives. A context manager, around the worker's whole run.

    >>> async with GraphExecutor(settings) as graphs:
    ...     await graphs.worker().run()
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._db = Connection(settings.database_url, name="archives")
        self._blobs = BlobContainer.open(settings.blob_url)
        self._disposal = InputDisposal(settings, self._blobs)
        self._shares = CoreShares(_cores())
        self._temp_root: TempRoot | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._not_removed: list[HeldCopy] = []
        # Copies are looked for by the disk that they are on. The host's name is for people.
        self._host = f"{socket.gethostname()}:{disk_id(settings.temp_dir)}"
        self.service = Service(GRAPHS_SERVICE, _builtin=True)
        for operation in GRAPH_OPERATIONS:
            self.service.post(f"/{operation}", timeout=RUN_SECONDS_MAX + _ENDING_SECONDS_MAX)(
                self._handler(operation)
            )
        within = Service("coatcheck-analysis", _builtin=True)
        within.post(
            "/analyse",
            isolated=True,
            timeout=RUN_SECONDS_MAX,
            memory_mb=settings.graphs_memory_mb,
        )(analyse)
        (self._analysis,) = within.endpoints.values()

    async def __aenter__(self) -> Self:
        self._temp_root = TempRoot(self._settings.temp_dir)
        self._tidying = asyncio.create_task(self._tidy_for_ever(), name="archives tidy")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._tidying is not None
        assert self._temp_root is not None
        self._tidying.cancel()
        await asyncio.gather(self._tidying, return_exceptions=True)
        await asyncio.to_thread(self._temp_root.close)
        await self._look_once_more()
        await self._disposal.__aexit__(kind, error, trace)
        await self._db.close()

    def worker(self, notifier: Notifier | None = None) -> Worker:
        """A worker of its own for archives, so that it takes as many as it can analyse at a time
        and leaves the others to its siblings."""
        lanes = {Lane.STANDARD: self._settings.graphs_concurrency}
        settings = replace(
            self._settings, lane_concurrency={lane: lanes.get(lane, 0) for lane in Lane}
        )
        ended = dict.fromkeys(GRAPH_ENDPOINTS, self._disposal.ended)
        name = f"{socket.gethostname()}:{os.getpid()}:{GRAPHS_SERVICE}"
        return Worker(settings, [self.service], name=name, on_ended=ended, notifier=notifier)

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
                # Known before it is noted: if we are interrupted there, it may have been noted.
                copy = HeldCopy(claimed.org, claimed.uuid, place)
                seconds = await inputs.note_disk_copy(self._db, claimed, place)
                if seconds is None:
                    raise JobCancelled  # it is no longer ours; what we say of it counts no more
                life, patience = asyncio.timeout(seconds), asyncio.timeout(RUN_SECONDS_MAX)
                try:
                    async with life, patience:
                        return await self._analyse(operation, job, request, folder, isolated)
                except TimeoutError:
                    if life.expired():
                        raise FailJob(_EXPIRED, code="archive_expired") from None
                    if patience.expired():
                        raise FailJob(_TOO_LONG, code="analysis_too_long") from None
                    raise
        except FolderNotMade as error:
            raise _meant_by(error.outcome) from error
        finally:
            if copy is not None:
                await self._close([copy])

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
        with self._shares.taken(job.org) as share:
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
            raise _meant_by(outcome)
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
            raise FailJob(_EXPIRED, code="archive_expired") from error
        except BlobStoreUnavailable as error:
            raise RetryLater(
                "the blob store could not be read", code="blob_store_unavailable"
            ) from error
        except OSError as error:
            raise disk_unavailable("the archive", error) from error
        if digest.hexdigest() != request.sha256:
            raise RetryLater("the archive came back changed", code="archive_corrupt")

    # What is left behind

    async def tidy(self) -> None:
        """Remove what dead workers of this machine left, and say of which copies that is true."""
        assert self._temp_root is not None
        await asyncio.to_thread(self._temp_root.sweep)
        for copy in self._not_removed:
            await asyncio.to_thread(self._temp_root.remove, self._folder_of(copy))
        await self._record_what_is_gone()

    async def _record_what_is_gone(self) -> None:
        again, self._not_removed = self._not_removed, []
        await self._close(again)
        held = await inputs.open_disk_copies(self._db, self._host)
        gone = [copy for copy in held if not self._folder_of(copy).exists()]
        if gone:
            await self._say_gone(gone, Mechanism.SWEEP)
            _log.info("the folders of %d dead analyses are gone", len(gone))

    async def _tidy_for_ever(self) -> None:
        while True:
            try:
                await self.tidy()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("dead analyses are looked for again later: %s", error)
            except Exception:  # noqa: BLE001 - it is tried again; nothing else depends on it
                _log.exception("looking for dead analyses failed")
            await asyncio.sleep(_TIDY_SECONDS)

    async def _look_once_more(self) -> None:
        """What was left to be looked at later: there is no later, and the folder is gone."""
        try:
            await self._record_what_is_gone()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("the next worker of this machine records what is gone: %s", error)

    async def _close(self, copies: Sequence[HeldCopy]) -> None:
        """Say of our own copies that they are gone; of those that could not be removed, later."""
        left = [copy for copy in copies if self._folder_of(copy).exists()]
        self._not_removed += left
        gone = [copy for copy in copies if copy not in left]
        if gone:
            await self._say_gone(gone, Mechanism.WORKER)

    def _folder_of(self, copy: HeldCopy) -> Path:
        return self._settings.temp_dir / copy.place.removeprefix(f"{self._host}/")

    async def _say_gone(self, copies: Sequence[HeldCopy], mechanism: Mechanism) -> None:
        try:
            await retried(lambda: inputs.disk_copies_deleted(self._db, copies, mechanism))
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.warning("removed folders are not recorded yet: %s", error)


class Share(NamedTuple):
    """What one analysis gets of its machine."""

    parsers: int
    niceness: int

    @property
    def slower(self) -> float:
        """By what factor the work may take longer, beside as much of somebody else's."""
        return float(_WEIGHT_STEP**self.niceness)


class CoreShares:
    """Divides the cores of a worker among the analyses that it runs, fairly by organisation.

    An analysis has the cores that no other has, and one at least: all together have as many parsers
    as there are cores, and one more for each further analysis. The more of them an organisation
    has, the lower is the priority of the next, so that what it has at work weighs little more than
    one process of another organisation, which gets its share as soon as it starts. Where nobody
    else wants the cores, priority costs nothing.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._parsers: Counter[str] = Counter()

    @contextmanager
    def taken(self, org: str) -> Iterator[Share]:
        parsers = max(1, self._cores - self._parsers.total())
        self._parsers[org] += parsers
        niceness = round(math.log(self._parsers[org], _WEIGHT_STEP))
        try:
            yield Share(parsers, min(niceness, NICENESS_MAX))
        finally:
            self._parsers[org] -= parsers
            self._parsers += Counter()  # forget those who have none


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_EXPIRED: Final = "the archive's time to live ended before the analysis did"
_TOO_LONG: Final = f"the analysis took longer than {RUN_SECONDS_MAX / 60:g} minutes"


def _meant_by(outcome: Outcome) -> Exception:
    """What a handler raises to end its job as the analysis ended."""
    match outcome:
        case Failed(code, message):
            return FailJob(message, code=code)
        case Retryable(code, message, after):
            return RetryLater(message, code=code, after=after)
        case Cancelled():
            return JobCancelled()
        case _:
            return RetryLater("the analysis ended without a result", code="analysis_ended")
