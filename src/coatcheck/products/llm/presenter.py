"""Shows llm jobs as HTTP bodies: the job, its state, why it waits, its answer."""

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
from coatcheck.http.job_responses import JobLinks
from coatcheck.http.response import JSON, RawHeaders, Response, StreamResponse, json_response
from coatcheck.products.llm import schemas
from coatcheck.products.llm.model import StoredAnswer
from coatcheck.products.llm.queries import TargetState
from coatcheck.products.llm.repository import LlmRepository

UNREACHABLE_CODE: Final = "target_unreachable"


async def waiting_reason(engine: Engine, view: JobView) -> schemas.ChatWaiting:
    """Why a job waits that no worker holds."""
    if view.state is State.RETRYING and view.error_code != UNREACHABLE_CODE:
        return schemas.ChatWaiting(
            "backoff",
            f"The last attempt failed: {view.error_message or view.error_code}",
            view.updated_at,
            view.run_at,
        )
    away = await _unreachable_targets(engine)
    all_away = len(away) == len(engine.settings.llm_targets) > 0
    if view.state is State.RETRYING or all_away:
        what = "No target can be reached" if all_away else "Its target could not be reached"
        return _unreachable(view, away, what)
    since = max(view.created_at, view.run_at)
    if await engine.stall_reason(view) == "no_worker":
        return schemas.ChatWaiting(
            "no_worker", "No worker that calls language models is running.", since, None
        )
    detail = "It is queued, behind other jobs or until a target has a free slot."
    if away:
        known = len(engine.settings.llm_targets)
        detail += f" Of {known} targets, {len(away)} cannot be reached."
    return schemas.ChatWaiting("queue", detail, since, None)


async def _unreachable_targets(engine: Engine) -> list[TargetState]:
    """The configured targets that cannot be reached."""
    names = {target.name for target in engine.settings.llm_targets}
    states = await engine.extension(LlmRepository).target_states()
    return [each for each in states if each.name in names and each.unreachable_since is not None]


def _unreachable(view: JobView, away: Sequence[TargetState], what: str) -> schemas.ChatWaiting:
    """The next try is the job's retry or a target's probe, whichever comes first."""
    since = [each.unreachable_since for each in away if each.unreachable_since is not None]
    due = [each.next_try_at for each in away if each.next_try_at is not None]
    if view.state is State.RETRYING:
        due.append(view.run_at)
    error = next((each.last_error for each in away if each.last_error), view.error_message)
    return schemas.ChatWaiting(
        UNREACHABLE_CODE,
        f"{what}; no attempt is spent. {error or ''}".rstrip(),
        min(since, default=view.updated_at),
        min(due, default=None),
    )


JOBS: Final = "/jobs"
CANCELLED: Final = "The job was cancelled."
_NO_RESULT: Final = b'"result":null}'

_encode: Final = msgspec.json.Encoder().encode
_decode_answer: Final = msgspec.json.Decoder(StoredAnswer).decode


class LlmPresenter:
    """Shows llm jobs, and makes the responses that contain them."""

    shows_long_results = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def urls(self, job_id: str) -> JobLinks:
        poll = f"{JOBS}/{job_id}"
        return JobLinks(poll, poll + "/events", poll + "/cancel")

    def ticket(self, job_id: str, state: State, urls: JobLinks) -> schemas.ChatTicket:
        shown = schemas.llm_state(state, loading=False)
        return schemas.ChatTicket(job_id, shown, state.terminal, schemas.ChatUrls(*urls))

    async def job(self, view: JobView) -> schemas.ChatJob:
        """The job, with its answer if the row has it. A longer answer is an artifact."""
        job = await self._job(view)
        stored = stored_answer(view)
        if stored is None or stored.artifact:
            return job
        return msgspec.structs.replace(job, result=stored.inline)

    async def item(self, view: JobView) -> schemas.ChatJobItem:
        """The job as an item of a list."""
        return schemas.ChatJobItem(
            job_id=view.id,
            state=await self._state(view),
            model=view.queue_key,
            attempt=view.attempts,
            error=shown_error(view),
            created_at=view.created_at,
            started_at=view.started_at,
            finished_at=view.finished_at,
            expires_at=view.expires_at,
            terminal=view.terminal,
            urls=schemas.ChatUrls(*self.urls(view.id)),
        )

    async def response(
        self, view: JobView, headers: RawHeaders, status: HTTPStatus = HTTPStatus.OK
    ) -> Response | StreamResponse:
        """The whole job, with an answer of any length."""
        stored = stored_answer(view)
        if stored is None or not stored.artifact:
            return json_response(await self.job(view), status, headers)
        pieces = await self._whole(view, stored.artifact)
        if pieces is None:
            return json_response(await self.job(view), status, headers)
        opening = _encode(await self._job(view)).removesuffix(_NO_RESULT) + b'"result":'

        async def body() -> AsyncIterator[bytes]:
            yield opening
            async for piece in pieces:
                yield piece
            yield b"}"

        return StreamResponse(status, body(), [JSON, *headers])

    async def answer(self, view: JobView) -> bytes:
        """The whole answer of a job that is done, as the target's JSON."""
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

    async def _job(self, view: JobView) -> schemas.ChatJob:
        assignment = None
        if view.dispatched_at is not None:
            assignment = await self._engine.extension(LlmRepository).assignment(view.org, view.uuid)
        # By the state that is shown: the job may have ended between the two reads.
        held = view.state.held
        state = schemas.llm_state(view.state, loading=assignment is not None and assignment.loading)
        waiting = None
        if state is schemas.LlmState.QUEUED and view.state is not State.DISPATCHING:
            waiting = await waiting_reason(self._engine, view)
        return schemas.ChatJob(
            job_id=view.id,
            state=state,
            model=view.queue_key,
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
            urls=schemas.ChatUrls(*self.urls(view.id)),
        )

    async def _state(self, view: JobView) -> schemas.LlmState:
        loading = False
        if view.state is State.DISPATCHING:
            assignment = await self._engine.extension(LlmRepository).assignment(view.org, view.uuid)
            loading = assignment is not None and assignment.loading
        return schemas.llm_state(view.state, loading=loading)

    def _artifact(self, view: JobView, artifact: Artifact) -> schemas.ChatArtifactItem:
        return schemas.ChatArtifactItem(
            name=artifact.name,
            media_type=artifact.media_type,
            bytes=artifact.size,
            sha256=artifact.sha256.hex(),
            url=artifact_url(self.urls(view.id).poll, artifact.name),
        )

    async def _whole(self, view: JobView, name: str) -> AsyncIterator[bytes] | None:
        """The pieces of an answer that is an artifact, with the first one read: once the head of a
        response is sent, nothing can say that the answer is missing. None if it was deleted."""
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
            raise BlobStoreUnavailable("the blob of an answer is missing") from error

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in stream:
                yield piece

        return pieces()


def shows_artifacts(view: JobView) -> bool:
    """Whether the job's files are shown: only at its end, as another attempt makes new ones."""
    return view.state is State.COMPLETED


def stored_answer(view: JobView) -> StoredAnswer | None:
    """Where the answer of a completed job is; None if it has none."""
    if view.state is not State.COMPLETED or view.result is None:
        return None
    return _decode_answer(view.result)


def shown_error(view: JobView) -> schemas.Error | None:
    """Why a job failed or was cancelled. ``waiting`` has what only delays it."""
    if view.state not in (State.FAILED, State.CANCELLED):
        return None
    code = "cancelled" if view.state is State.CANCELLED else view.error_code or "job_failed"
    return schemas.Error(code, view.error_message or CANCELLED)
