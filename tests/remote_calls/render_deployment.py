"""A deployment whose jobs a fake remote does: an engine, remote calls, workers with a poller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from coatcheck import Job, Service
from coatcheck.blobs import BlobContainer
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.core.remote.context import RemoteRetryPolicy
from coatcheck.core.remote.result_store import ResultOf, StoredArtifact, StoredOutput
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.ids import from_text
from coatcheck.domain.job import JobView
from coatcheck.domain.remote_work import Destination, OperatorRemote, RemoteWork, encode_work
from coatcheck.maintenance.remote_poller import Poller
from coatcheck.remotes import RemoteResult
from coatcheck.worker.worker import Worker
from tests.deployment import Deployment
from tests.remotes.fake_service import SECRETS, FakeService
from tests.sealed_secrets import store_secrets
from tests.waiting import eventually_async

ENDPOINT = "studio.post__render"
SOUND = b"RIFF....WAVE" * 100


class HeldResultStore:
    """Stores a result under one key for each job, and can be held up on the way."""

    def __init__(self) -> None:
        self.is_final = False
        self.kept: list[UUID] = []
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    def fails_for_good(self, of: ResultOf) -> bool:
        assert "name" in of.note
        return self.is_final

    def blob_key(self, of: ResultOf) -> str | None:
        return f"renders/{of.note['name']}.wav"

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        key = self.blob_key(of)
        assert key is not None
        self.begun.set()
        await self.may_end.wait()
        stored = await blobs.put(key, aiter(result))
        self.kept.append(of.job)
        artifact = StoredArtifact("render.wav", key, result.media_type, stored.size, stored.sha256)
        return StoredOutput(b'{"bytes": %d}' % stored.size, artifact)


class RenderDeployment(Deployment):
    """A deployment without a server whose jobs ``remote`` does. ``calls`` is what a server has;
    workers bring their own."""

    def __init__(self, dsn: str, folder: Path, remote: FakeService, **settings: Any) -> None:
        super().__init__(
            dsn, folder, **{"servers": 0, "public_url": "https://coats.example", **settings}
        )
        self.remote = remote
        self.blobs = BlobContainer.open(self.settings.blob_url)
        self.result_store = HeldResultStore()
        self.to = Destination(target=remote.definition())
        self.operators: dict[str, OperatorRemote] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.calls = await self.open_remote_calls()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.result_store.may_end.set()
        await super().__aexit__(kind, error, trace)

    async def open_remote_calls(self, **options: Any) -> RemoteCalls:
        database = await self._closing.enter_async_context(Database.of_worker(self.dsn))
        return await self._closing.enter_async_context(
            RemoteCalls(
                self.settings,
                {ENDPOINT: self.result_store},
                database=database,
                blobs=lambda: self.blobs,
                operators=self.operators,
                **options,
            )
        )

    async def start_render_worker(self, *, polling: bool = True, faults_max: int = 3) -> Worker:
        """A worker for what is submitted; with ``polling``, it looks after what it spawned."""
        calls = await self.open_remote_calls(retry_policy=RemoteRetryPolicy(faults_max))
        worker = await self.run_worker(Worker(self.settings, [studio()], remote_calls=calls))
        if polling:
            connection = Connection(self.dsn, name="tests poller")
            poller = Poller(connection, calls)
            self._closing.push_async_callback(connection.close)
            self._closing.push_async_callback(poller.stop)
            poller.start()
        return worker

    async def submit(self, name: str = "a", **options: Any) -> str:
        stored_as = ""
        if self.to.target is not None:
            stored_as = await store_secrets(
                self.settings,
                remote_address(self.to.target),
                SECRETS,
                org=options.get("org", "default"),
            )
        to = Destination(self.to.target, stored_as, self.to.operator, {"name": name})
        payload = encode_work(to, b'{"text": "hello"}')
        return (await self.engine.submit(ENDPOINT, payload, **options)).id

    async def wait_for(self, job_id: str, state: Callable[[JobView], bool], what: str) -> JobView:
        async def look() -> JobView | None:
            view = await self.engine.get(job_id)
            return view if state(view) else None

        found: JobView = await eventually_async(look, what)
        return found

    async def parked(self, job_id: str) -> JobView:
        return await self.wait_for(job_id, lambda job: job.execution_id is not None, "it is parked")

    async def ended(self, job_id: str) -> JobView:
        return await self.wait_for(job_id, lambda job: job.terminal, "it ended")

    async def stored(self) -> list[str]:
        return [key async for page in self.blobs.keys_under("renders") for key in page]


def studio() -> Service:
    service = Service("studio")

    @service.post("/render")
    async def render(job: Job, work: RemoteWork) -> None:
        await job.hand_over(work)

    return service


def uuid(job_id: str) -> UUID:
    return from_text(job_id)
