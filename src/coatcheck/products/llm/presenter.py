"""Shows jobs as the llm surface does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.errors import BlobStoreUnavailable, JobNotFound
from coatcheck.domain.job import Artifact, JobView
from coatcheck.domain.states import State
from coatcheck.http.artifacts import artifact_url
from coatcheck.http.job_responses import JobUrls
from coatcheck.http.response import JSON, RawHeaders, Reply, StreamReply, json_reply
from coatcheck.products.llm import schemas as words
from coatcheck.products.llm.model import StoredAnswer
from coatcheck.products.llm.repository import LlmQueries
from coatcheck.products.llm.waiting import why_it_waits

JOBS: Final = "/jobs"
CANCELLED: Final = "The job was cancelled."
_NO_RESULT: Final = b'"result":null}'

_encode: Final = msgspec.json.Encoder().encode
_decode_answer: Final = msgspec.json.Decoder(StoredAnswer).decode


class LlmVoice:
    """What the surface's jobs look like, and the answers that show them."""

    shows_long_results = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def urls(self, job_id: str) -> JobUrls:
        poll = f"{JOBS}/{job_id}"
        return JobUrls(poll, poll + "/events", poll + "/cancel")

    def ticket(self, job_id: str, state: State, urls: JobUrls) -> words.Ticket:
        shown = words.llm_state(state, loading=False)
        return words.Ticket(job_id, shown, state.terminal, words.Urls(*urls))

    async def job(self, view: JobView) -> words.Job:
        """The job. An answer is in it if its row has it; a longer one is an artifact."""
        job = await self._job(view)
        stored = stored_answer(view)
        if stored is None or stored.artifact:
            return job
        return msgspec.structs.replace(job, result=stored.inline)

    async def item(self, view: JobView) -> words.JobItem:
        """The job, in a list."""
        return words.JobItem(
            job_id=view.id,
            state=await self._state(view),
            model=view.flow,
            attempt=view.attempts,
            error=shown_error(view),
            created_at=view.created_at,
            started_at=view.started_at,
            finished_at=view.finished_at,
            expires_at=view.expires_at,
            terminal=view.terminal,
            urls=words.Urls(*self.urls(view.id)),
        )

    async def reply(
        self, view: JobView, headers: RawHeaders, status: HTTPStatus = HTTPStatus.OK
    ) -> Reply | StreamReply:
        """The whole job, with its answer however long that is."""
        stored = stored_answer(view)
        if stored is None or not stored.artifact:
            return json_reply(await self.job(view), status, headers)
        pieces = await self._whole(view, stored.artifact)
        if pieces is None:
            return json_reply(await self.job(view), status, headers)
        opening = _encode(await self._job(view)).removesuffix(_NO_RESULT) + b'"result":'

        async def body() -> AsyncIterator[bytes]:
            yield opening
            async for piece in pieces:
                yield piece
            yield b"}"

        return StreamReply(status, body(), [JSON, *headers])

    async def answer(self, view: JobView) -> bytes:
        """The whole answer of a job that is done: the target's own, as JSON."""
        stored = stored_answer(view)
        assert stored is not None, "the job is not done"
        if not stored.artifact:
            return bytes(stored.inline)
        pieces = await self._whole(view, stored.artifact)
        if pieces is None:
            raise JobNotFound("its answer was deleted")
        return b"".join([piece async for piece in pieces])

    async def artifacts(self, view: JobView) -> Sequence[Artifact]:
        """The job's files, once it is done."""
        if not shows_artifacts(view):
            return ()
        return await self._engine.artifacts(view.id, org=view.org)

    async def _job(self, view: JobView) -> words.Job:
        assignment = None
        if view.dispatched_at is not None:
            assignment = await self._engine.extension(LlmQueries).assignment(view.org, view.uuid)
        # By the state that is shown: it may have ended between the two reads.
        held = view.state.held
        state = words.llm_state(view.state, loading=assignment is not None and assignment.loading)
        waiting = None
        if state is words.LlmState.QUEUED and view.state is not State.DISPATCHING:
            waiting = await why_it_waits(self._engine, view)
        return words.Job(
            job_id=view.id,
            state=state,
            model=view.flow,
            attempt=view.attempts,
            error=shown_error(view),
            artifacts=[self._artifact(view, each) for each in await self.artifacts(view)],
            waiting=waiting,
            target=(
                assignment.target if assignment is not None and (held or view.terminal) else None
            ),
            created_at=view.created_at,
            started_at=view.started_at,
            finished_at=view.finished_at,
            expires_at=view.expires_at,
            terminal=view.terminal,
            urls=words.Urls(*self.urls(view.id)),
        )

    async def _state(self, view: JobView) -> words.LlmState:
        loading = False
        if view.state is State.DISPATCHING:
            assignment = await self._engine.extension(LlmQueries).assignment(view.org, view.uuid)
            loading = assignment is not None and assignment.loading
        return words.llm_state(view.state, loading=loading)

    def _artifact(self, view: JobView, artifact: Artifact) -> words.ArtifactItem:
        return words.ArtifactItem(
            name=artifact.name,
            media_type=artifact.media_type,
            bytes=artifact.size,
            sha256=artifact.sha256.hex(),
            url=artifact_url(self.urls(view.id).poll, artifact.name),
        )

    async def _whole(self, view: JobView, name: str) -> AsyncIterator[bytes] | None:
        """An answer that is an artifact, begun: once an answer's head is sent there is no way to
        say that it is not there. None if somebody deleted it."""
        for artifact in await self._engine.artifacts(view.id, org=view.org):
            if artifact.name == name:
                break
        else:
            await self._engine.get(view.id, org=view.org)  # pruned just now: then this raises
            return None
        stream = self._engine.read_artifact(artifact)
        try:
            first = await anext(stream)
        except FileNotFoundError as error:
            await self._engine.get(view.id, org=view.org)  # pruned just now: then this raises
            raise BlobStoreUnavailable("the blob of an answer is gone") from error

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in stream:
                yield piece

        return pieces()


def shows_artifacts(view: JobView) -> bool:
    """Whether the job's files are shown: not before its end, as another attempt makes its own."""
    return view.state is State.COMPLETED


def stored_answer(view: JobView) -> StoredAnswer | None:
    """Where the answer of a job is that is done."""
    if view.state is not State.COMPLETED or view.result is None:
        return None
    return _decode_answer(view.result)


def shown_error(view: JobView) -> words.Error | None:
    """Why a job failed. What only delayed it is said by ``waiting``."""
    if view.state not in (State.FAILED, State.CANCELLED):
        return None
    code = "cancelled" if view.state is State.CANCELLED else view.error_code or "job_failed"
    return words.Error(code, view.error_message or CANCELLED)
