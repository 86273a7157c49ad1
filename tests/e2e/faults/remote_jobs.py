"""Jobs of a deployment that a fake remote does, and what must be true of them in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from coatcheck import JobView, State, Ticket
from coatcheck.blobs import BlobContainer
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.remote_work import Destination, encode_work
from tests.child_process import ChildProcess
from tests.deployment import Deployment
from tests.e2e.faults import invariants
from tests.e2e.faults.remote_work import remote_worker
from tests.e2e.faults.roles import end_leases_of_the_struck, start_role
from tests.remote_calls.render_deployment import ENDPOINT, SOUND
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_service import SECRETS, Call
from tests.sealed_secrets import store_secrets
from tests.waiting import eventually_async

SPAWN_PATH = "/tts/submit-job"


class FakeRenderer(FakeHttp):
    """Its work is done as soon as it is taken, if ``at_once``. While ``is_silent``, it takes work
    and does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = True
        self.is_silent = False
        self._held_back: list[tuple[asyncio.StreamWriter, str, Any]] = []

    @property
    def spawns_asked_for(self) -> int:
        return sum(call.path == SPAWN_PATH for call in self.calls)

    def complete_all(self) -> None:
        for work in self.works:
            self.complete(work, SOUND)

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        await super().respond(call, writer)
        if call.path == SPAWN_PATH and self.at_once:
            self.complete_all()

    def answer(self, writer: asyncio.StreamWriter, status: str, document: Any) -> None:
        if self.is_silent and "job_id" in document:
            self._held_back.append((writer, status, document))
        else:
            super().answer(writer, status, document)

    def give_answers(self) -> None:
        """Answer whoever spawned meanwhile, if they still listen, and from now on at once."""
        self.is_silent = False
        for writer, status, document in self._held_back:
            super().answer(writer, status, document)


class RemoteJobs:
    """Jobs of a deployment that go to ``target``, and are stored under ``renders/``."""

    def __init__(self, deployment: Deployment, target: dict[str, Any]) -> None:
        self.deployment = deployment
        self.target = target
        self._blobs = BlobContainer.open(deployment.settings.blob_url)

    def start_worker_process(self, **options: str) -> ChildProcess:
        """A process that spawns and polls."""
        return start_role(self.deployment, "remote_worker", **options)

    @asynccontextmanager
    async def working_here(self, *, polling: bool = True) -> AsyncIterator[None]:
        """The same in this process, with maintenance; or one that spawns only."""
        if polling:
            self.deployment.start_maintenance()
        async with remote_worker(self.deployment.settings, polling=polling) as worker:
            await self.deployment.run_worker(worker)
            yield
            await self.deployment.stop_worker(worker)

    async def submit(self, name: str = "a", **options: Any) -> Ticket:
        stored_as = await store_secrets(
            self.deployment.settings, remote_address(self.target), SECRETS
        )
        to = Destination(self.target, stored_as, note={"name": name})
        payload = encode_work(to, b'{"text": "One.", "language": "en"}')
        return await self.deployment.engine.submit(ENDPOINT, payload, **options)

    async def parked(self, ticket: Ticket) -> JobView:
        return await self.deployment.wait_for_job(
            ticket, lambda job: job.execution_id is not None, "it is parked"
        )

    async def end_leases_of_the_dead(self) -> None:
        """Let the time of everybody who was heard of be up, by the database's clock: who died will
        never be heard of again."""
        await end_leases_of_the_struck(self.deployment)
        await self.deployment.sql.execute(
            "UPDATE remote_calls SET due_at = now() WHERE due_at IS NOT NULL"
        )

    async def put(self, key: str, content: bytes) -> None:
        await self._blobs.put(key, content)

    async def stored(self) -> list[str]:
        return sorted([key async for page in self._blobs.keys_under("renders") for key in page])

    async def ended_with_nothing_left_over(self, ticket: Ticket, content: bytes = SOUND) -> JobView:
        """It ended, once; what counts is whole; of the call, and of what does not count, nothing is
        left."""
        deployment = self.deployment
        view = await deployment.wait_for_end(ticket)
        await eventually_async(
            lambda: deployment.sql.fetchval("SELECT count(*) = 0 FROM remote_calls"),
            "no call is left",
        )
        await invariants.one_end(deployment, view)
        artifacts = await deployment.engine.artifacts(ticket.id)
        assert await self.stored() == [artifact.blob_key for artifact in artifacts]
        assert len(artifacts) == (view.state is State.COMPLETED)
        for artifact in artifacts:
            assert await self._blobs.get(artifact.blob_key) == content
            assert artifact.size == len(content)
        return view
