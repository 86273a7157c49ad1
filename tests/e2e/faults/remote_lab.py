"""A laboratory whose jobs are done by a remote, and what must be true of them in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from coatcheck import JobView, Settings, State, Ticket
from coatcheck.blobs import BlobContainer
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.remote_work import Destination, encode_work
from coatcheck.settings.egress_allow import parse_allow
from tests.child_process import ChildProcess
from tests.e2e.faults import invariants
from tests.e2e.faults.laboratory import Laboratory
from tests.e2e.faults.remote_work import remote_worker
from tests.remote_calls.bureau import ENDPOINT, SOUND
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_service import SECRETS, Call
from tests.sealed_secrets import SECRET_KEY, store_secrets
from tests.waiting import eventually_async

HERE = "127.0.0.1"
SPAWN_PATH = "/tts/submit-job"


class Studio(FakeHttp):
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


class RemoteLaboratory(Laboratory):
    """Jobs go to ``target``, and are stored under ``renders/``."""

    target: dict[str, Any]

    def settings(self, **overrides: Any) -> Settings:
        usual = {"egress_allow": parse_allow(HERE), "secret_keys": (SECRET_KEY,)}
        return super().settings(**{**usual, **overrides})

    def start_working_remotely(self, **options: str) -> ChildProcess:
        """A process that spawns and polls."""
        return self.start("remote_worker", egress_allow=HERE, secret_keys=SECRET_KEY, **options)

    @asynccontextmanager
    async def working_here(self, *, polling: bool = True) -> AsyncIterator[None]:
        """The same in this process, with upkeep; or one that spawns only."""
        if polling:
            self.start_upkeep()
        async with remote_worker(self.settings(), polling=polling) as worker:
            await self.run_worker(worker)
            yield
            await self.drain(worker)

    async def hand_in(self, name: str = "a", **options: Any) -> Ticket:
        stored_as = await store_secrets(self.settings(), remote_address(self.target), SECRETS)
        to = Destination(self.target, stored_as, note={"name": name})
        payload = encode_work(to, b'{"text": "One.", "language": "en"}')
        return await self.engine.submit(ENDPOINT, payload, **options)

    async def parked(self, ticket: Ticket) -> JobView:
        return await self.until(ticket, lambda job: job.execution_id is not None, "it is parked")

    async def forget_the_dead(self) -> None:
        """Let the time of everybody who was heard of be up, by the database's clock: who died will
        never be heard of again."""
        await self.forget_the_struck()
        await self.sql.execute("UPDATE remote_calls SET due_at = now() WHERE due_at IS NOT NULL")

    async def put(self, key: str, content: bytes) -> None:
        await self._blobs.put(key, content)

    async def stored(self) -> list[str]:
        return sorted([key async for page in self._blobs.keys_under("renders") for key in page])

    @property
    def _blobs(self) -> BlobContainer:
        return BlobContainer.open(self.settings().blob_url)

    async def ended_with_nothing_left_over(self, ticket: Ticket, content: bytes = SOUND) -> JobView:
        """It ended, once; what counts is whole; of the call, and of what does not count, nothing is
        left."""
        view = await self.end_of(ticket)
        await eventually_async(
            lambda: self.sql.fetchval("SELECT count(*) = 0 FROM remote_calls"), "no call is left"
        )
        await invariants.one_end(self, view)
        artifacts = await self.engine.artifacts(ticket.id)
        assert await self.stored() == [artifact.blob_key for artifact in artifacts]
        assert len(artifacts) == (view.state is State.COMPLETED)
        for artifact in artifacts:
            assert await self._blobs.get(artifact.blob_key) == content
            assert artifact.size == len(content)
        return view
