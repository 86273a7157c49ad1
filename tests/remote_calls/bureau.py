"""A worker, a poller and an engine around jobs that a remote does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from coatcheck import Engine, Job, Service, Settings
from coatcheck.blobs import BlobContainer
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.core.remote.context import RemoteRetryPolicy
from coatcheck.core.remote.result_store import ResultOf, StoredArtifact, StoredOutput
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.ids import from_text
from coatcheck.domain.job import JobView
from coatcheck.domain.remote_work import Destination, OperatorRemote, RemoteWork, encode_work
from coatcheck.maintenance.remote_poller import Poller
from coatcheck.remotes import RemoteResult
from coatcheck.settings.egress_allow import parse_allow
from coatcheck.worker.worker import Worker
from tests.remotes.fake_service import SECRETS, FakeService
from tests.sealed_secrets import SECRET_KEY, store_secrets
from tests.waiting import eventually_async

ENDPOINT = "studio.post__render"
SOUND = b"RIFF....WAVE" * 100


class BlobKeeper:
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


class Bureau:
    """A context manager. ``calls`` is what a server has; workers bring their own."""

    def __init__(self, dsn: str, folder: Path, remote: FakeService, **overrides: Any) -> None:
        self.dsn = dsn
        self.remote = remote
        self.settings = Settings(
            **{
                "database_url": dsn,
                "blob_url": (folder / "blobs").as_uri(),
                "temp_dir": folder / "temp",
                "drain_seconds": 0.0,
                "egress_allow": parse_allow("127.0.0.1"),
                "public_url": "https://coats.example",
                "secret_keys": (SECRET_KEY,),
                **overrides,
            }
        )
        self.blobs = BlobContainer.open(self.settings.blob_url)
        self.keeper = BlobKeeper()
        self.to = Destination(target=remote.definition())
        self.operators: dict[str, OperatorRemote] = {}
        self._closing = AsyncExitStack()
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def __aenter__(self) -> Self:
        self.engine = await self._closing.enter_async_context(await Engine.connect(self.settings))
        self.calls = await self.another_desk()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.keeper.may_end.set()
        for worker, _ in self._workers:
            worker.stop()
        await asyncio.gather(*(task for _, task in self._workers))
        await self._closing.aclose()

    async def another_desk(self, **options: Any) -> RemoteCalls:
        return await self._closing.enter_async_context(
            RemoteCalls(
                self.settings,
                {ENDPOINT: self.keeper},
                blobs=lambda: self.blobs,
                operators=self.operators,
                **options,
            )
        )

    async def work(self, *, polling: bool = True, faults_max: int = 3) -> Worker:
        """A worker for what is handed in; with ``polling``, it looks after what it spawned."""
        calls = await self.another_desk(retry_policy=RemoteRetryPolicy(faults_max))
        worker = Worker(self.settings, [studio()], remote_calls=calls)
        self._workers.append((worker, asyncio.create_task(worker.run())))
        await worker.ready.wait()
        if polling:
            line = Connection(self.dsn, name="tests poller")
            poller = Poller(line, calls)
            self._closing.push_async_callback(line.close)
            self._closing.push_async_callback(poller.stop)
            poller.start()
        return worker

    async def hand_in(self, name: str = "a", **options: Any) -> str:
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

    async def when(self, job_id: str, state: Callable[[JobView], bool], what: str) -> JobView:
        async def look() -> JobView | None:
            view = await self.engine.get(job_id)
            return view if state(view) else None

        found: JobView = await eventually_async(look, what)
        return found

    async def parked(self, job_id: str) -> JobView:
        return await self.when(job_id, lambda job: job.execution_id is not None, "it is parked")

    async def ended(self, job_id: str) -> JobView:
        return await self.when(job_id, lambda job: job.terminal, "it ended")

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
