"""The worker's part in work that is done elsewhere: spawns it, and looks after all that is."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from coatcheck.blobs import BlobContainer
from coatcheck.domain.endpoint_names import SPEECH_SERVICE
from coatcheck.domain.remote_work import RemoteWork
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX
from coatcheck.domain.speech import SPEECH_PATHS
from coatcheck.engine.remote_calls import RemoteCalls
from coatcheck.job import Job
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.store.election import session_that_ends_if_silent
from coatcheck.store.line import Line
from coatcheck.surfaces.remote_keepers import KEEPERS, operators
from coatcheck.upkeep.poller import Poller, RemoteKeeper

_SILENT_SECONDS_MAX = 30.0
"""Three times as long as who is elected to clear away rests between two looks."""


class RemoteExecutor:
    """A context manager, around the worker's whole run.

    >>> async with RemoteExecutor(settings) as remote:
    ...     await Worker(settings, [docs, *remote.services], remote_calls=remote.calls).run()
    """

    def __init__(self, settings: Settings) -> None:
        self._blob_url = settings.blob_url
        self._blobs: BlobContainer | None = None
        self.calls = RemoteCalls(
            settings,
            KEEPERS,
            blobs=self._open_blobs,
            operators=operators(settings),
        )
        self._line = Line(
            settings.database_url,
            name="poller",
            server_settings=session_that_ends_if_silent(_SILENT_SECONDS_MAX),
        )
        self._loops = (Poller(self._line, self.calls), RemoteKeeper(self._line, self.calls))
        self._closing = AsyncExitStack()
        speech = Service(SPEECH_SERVICE, _builtin=True)

        for path in SPEECH_PATHS.values():

            @speech.post(path, timeout=TIMEOUT_SECONDS_MAX)
            async def hand_over(job: Job, work: RemoteWork) -> None:
                await job.hand_over(work)

        self.services = (speech,)

    async def __aenter__(self) -> Self:
        await self._closing.enter_async_context(self.calls)
        self._closing.push_async_callback(self._line.close)
        for loop in self._loops:
            self._closing.push_async_callback(loop.stop)
            loop.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    def _open_blobs(self) -> BlobContainer:
        if self._blobs is None:
            self._blobs = BlobContainer.open(self._blob_url)
        return self._blobs
