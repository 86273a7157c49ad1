"""The jobs of llm: how they are found and shown, why they wait, and their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.core import Engine
from coatcheck.core.explain import JobExplainer, clock, for_duration
from coatcheck.domain.errors import BlobStoreUnavailable, InvalidParameter, JobNotFound, NotFound
from coatcheck.domain.explanation import Blocker, BlockerKind
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.job import Artifact, JobView
from coatcheck.domain.listing import JobFilter, PageQuery
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.egress import Guard
from coatcheck.http.artifacts import artifact_url
from coatcheck.http.gate import Gate
from coatcheck.http.job_adapters import JobLabel
from coatcheck.http.job_resource import JobResource
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.parameters import read_choice
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, RawHeaders, Response, StreamResponse, json_response
from coatcheck.http.routing import Parameter
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.http.watching import JobLinks
from coatcheck.products.llm import schemas, webhook_payloads
from coatcheck.products.llm.caller_retries import SynchronousCallers
from coatcheck.products.llm.model import (
    CANCELLED,
    LLM_ENDPOINTS,
    LLM_KINDS,
    LLM_SERVICE,
    MODEL_NAME_CHARACTERS_MAX,
    LlmFailure,
    LlmRequest,
    model_name,
    stored_answer,
)
from coatcheck.products.llm.repository import LlmRepository, TargetState
from coatcheck.settings import Settings


async def waiting_reason(engine: Engine, view: JobView) -> schemas.ChatWaiting:
    """Why a job waits that no worker holds."""
    if view.state is State.RETRYING and view.error_code != CoreFailure.TARGET_UNREACHABLE:
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
        CoreFailure.TARGET_UNREACHABLE,
        f"{what}; no attempt is spent. {error or ''}".rstrip(),
        min(since, default=view.updated_at),
        min(due, default=None),
    )


JOBS: Final = "/jobs"
_NO_RESULT: Final = b'"result":null}'

_encode: Final = msgspec.json.Encoder().encode
_DEFAULT_TAG: Final = ":latest"
_decode_request: Final = msgspec.json.Decoder(LlmRequest).decode


class LlmJobs(JobResource):
    """Chats and completions."""

    product = "llm"
    name = "chat"
    path = f"{JOBS}/{{id}}"
    body = schemas.ChatJob
    ticket_body = schemas.ChatTicket
    page_body = schemas.ChatJobPage
    endpoints = LLM_KINDS
    states = schemas.ENGINE_STATES
    events_description = (
        "Each `chunk` is one object of the target's stream, unchanged. The chunk "
        '`{"coatcheck": {"restarted": true, ...}}` says that the job starts again: all chunks '
        "before it are void."
    )

    def ticket(
        self, job_id: str, state: State, links: JobLinks, endpoint: str
    ) -> schemas.ChatTicket:
        del endpoint
        shown = schemas.llm_state(state, loading=False)
        return schemas.ChatTicket(job_id, shown, state.terminal, schemas.ChatUrls(*links))

    async def show(self, view: JobView) -> schemas.ChatJob:
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
            urls=schemas.ChatUrls(*self.links(view.id)),
        )

    async def response(
        self, view: JobView, status: HTTPStatus, headers: RawHeaders, retry_after: int | None = None
    ) -> Response | StreamResponse:
        """The whole job, with an answer of any length."""
        del retry_after
        view = await self.engine.with_result(view)
        stored = stored_answer(view)
        if stored is None or not stored.artifact:
            return json_response(await self.show(view), status, headers)
        pieces = await self._whole(view, stored.artifact)
        if pieces is None:
            return json_response(await self.show(view), status, headers)
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

    def shows_files(self, view: JobView) -> bool:
        """Only at its end, as another attempt makes new ones."""
        return view.state is State.COMPLETED

    async def artifacts(self, view: JobView) -> Sequence[Artifact]:
        """The job's files, once it is done."""
        if not self.shows_files(view):
            return ()
        return await self.engine.artifacts(view.id, org=view.org)

    # Listing

    async def page(
        self, request: Request, asked: PageQuery
    ) -> tuple[Sequence[schemas.ChatJobItem], str | None]:
        """The caller's jobs; for an admin, all of the organisation's."""
        principal, query = request.principal, request.query
        choice = read_choice(query, "state", list(schemas.LlmState))
        requested = None if choice is None else schemas.LlmState(choice)
        model = _model(query.get("model"))
        wanted = JobFilter(
            org=principal.org,
            endpoints=list(LLM_ENDPOINTS.values()),
            queue_key_prefix=model,
            states=None if requested is None else schemas.ENGINE_STATES[requested],
            owner=principal.lists_jobs_of,
        )
        page = await self.engine.listed(wanted, asked)
        shown = [await self.item(view) for view in page.items]
        items = [
            item
            for item in shown
            # A claimed job is `queued` or `loading`: its row does not say which.
            if (requested is None or item.state is requested)
            # One model's name may begin with another's.
            and (model is None or item.model == model)
        ]
        return items, asked.following(shown, lambda item: item.job_id)

    # For the console and for webhooks

    async def label(self, job: OrgJob, /) -> JobLabel:
        kind = LLM_KINDS.get(job.view.endpoint, job.view.endpoint)
        return JobLabel(LLM_SERVICE, f"{kind} {job.view.queue_key.removesuffix(_DEFAULT_TAG)}")

    def result(self, job: OrgJob) -> bytes | None:
        stored = stored_answer(job.view)
        return None if stored is None or stored.artifact else bytes(stored.inline)

    async def input(self, job: OrgJob) -> bytes:
        return bytes(_decode_request(await super().input(job)).body)

    async def payload(self, event: DeliveryEvent, view: JobView | None) -> Any:
        return await webhook_payloads.render(self, event, view)

    async def _job(self, view: JobView) -> schemas.ChatJob:
        assignment = None
        if view.dispatched_at is not None:
            assignment = await self.engine.extension(LlmRepository).assignment(view.org, view.uuid)
        # By the state that is shown: the job may have ended between the two reads.
        held = view.state.held
        state = schemas.llm_state(view.state, loading=assignment is not None and assignment.loading)
        waiting = None
        if state is schemas.LlmState.QUEUED and view.state is not State.DISPATCHING:
            waiting = await waiting_reason(self.engine, view)
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
            urls=schemas.ChatUrls(*self.links(view.id)),
        )

    async def _state(self, view: JobView) -> schemas.LlmState:
        loading = False
        if view.state is State.DISPATCHING:
            assignment = await self.engine.extension(LlmRepository).assignment(view.org, view.uuid)
            loading = assignment is not None and assignment.loading
        return schemas.llm_state(view.state, loading=loading)

    def _artifact(self, view: JobView, artifact: Artifact) -> schemas.ChatArtifactItem:
        return schemas.ChatArtifactItem(
            name=artifact.name,
            media_type=artifact.media_type,
            bytes=artifact.size,
            sha256=artifact.sha256.hex(),
            url=artifact_url(self.links(view.id).poll, artifact.name),
        )

    async def _whole(self, view: JobView, name: str) -> AsyncIterator[bytes] | None:
        """The pieces of an answer that is an artifact, with the first one read: once the head of a
        response is sent, nothing can say that the answer is missing. None if it was deleted."""
        for artifact in await self.engine.artifacts(view.id, org=view.org):
            if artifact.name == name:
                break
        else:
            await self.engine.get(view.id, org=view.org)  # pruned just now: then this raises
            return None
        stream = self.engine.read_artifact(artifact)
        try:
            first = await anext(stream)
        except FileNotFoundError as error:
            await self.engine.get(view.id, org=view.org)  # pruned just now: then this raises
            raise BlobStoreUnavailable("the blob of an answer is missing") from error

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in stream:
                yield piece

        return pieces()


def shown_error(view: JobView) -> schemas.Error | None:
    """Why a job failed or was cancelled. ``waiting`` has what only delays it."""
    if view.state not in (State.FAILED, State.CANCELLED):
        return None
    code = view.error_code or CoreFailure.JOB_FAILED
    if view.state is State.CANCELLED:
        code = CoreFailure.CANCELLED
    return schemas.Error.of(code, view.error_message or CANCELLED)


def _model(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        return model_name(given)
    except InvalidParameter as error:
        raise InvalidParameter(error.field, error.issue) from None


LIST_FILTERS: Final = (
    Parameter(
        "state",
        "query",
        "Only jobs in this state.",
        {"type": "string", "enum": list(schemas.LlmState)},
    ),
    Parameter(
        "model",
        "query",
        "Only jobs for this model.",
        {"type": "string", "minLength": 1, "maxLength": MODEL_NAME_CHARACTERS_MAX},
    ),
)


_ENDPOINTS: Final = sorted(LLM_ENDPOINTS.values())


class ChatExplainer(JobExplainer):
    """Explains by what workers recorded of the targets that are configured."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        targets = engine.settings.llm_targets
        self._targets = frozenset(target.name for target in targets)
        self._slots = sum(target.concurrency for target in targets)

    def spends_no_attempt(self, view: JobView) -> bool:
        return view.error_code == LlmFailure.CONNECTION_LOST

    async def unreachable(self, view: JobView) -> Sequence[Blocker]:
        states = await self._engine.extension(LlmRepository).target_states()
        away = [
            each
            for each in states
            if each.name in self._targets and each.unreachable_since is not None
        ]
        if not away or len(away) < len(self._targets):
            return ()
        since = [each.unreachable_since for each in away if each.unreachable_since is not None]
        tries = [each.next_try_at for each in away if each.next_try_at is not None]
        return [
            Blocker(
                BlockerKind.TARGET_UNREACHABLE,
                f"No target has been reached since {clock(min(since), view.read_at)}. "
                "This does not count as an attempt.",
                since=min(since),
                until=min(tries, default=None),
            )
        ]

    async def full(self, view: JobView) -> Sequence[Blocker]:
        explainer = self._engine.explainer
        held = await explainer.held_of(_ENDPOINTS)
        if not self._slots or held < self._slots:
            return ()
        return [
            Blocker(
                BlockerKind.LANE_FULL,
                "All targets are at their concurrency limit.",
                key="targets",
                limit=self._slots,
                held=held,
                holders=await explainer.holders(view.org, "endpoint", view.endpoint),
                is_shared=True,
            )
        ]

    async def starting(self, view: JobView) -> Blocker | None:
        assignment = await self._engine.extension(LlmRepository).assignment(view.org, view.uuid)
        if assignment is None or not assignment.loading or view.started_at is not None:
            return None
        return Blocker(
            BlockerKind.MODEL_LOADING,
            f"The model {view.queue_key} is being loaded{for_duration(view.dispatched_at, view)}.",
            key=view.queue_key,
            since=view.dispatched_at,
        )


class LlmNotConfigured(NotFound):
    """No target is configured. The text says what to set."""

    code = "llm_not_configured"
    public_text = None


LARGE_BODIES_MAX: Final = 8
"""Each needs some 160 MiB while it is read, checked and submitted."""
LARGE_BODIES_OF_ONE_ORG_MAX: Final = 3


def large_body_slots(settings: Settings) -> UploadSlots:
    """Slots for large bodies."""
    return UploadSlots(settings.processes, LARGE_BODIES_MAX, LARGE_BODIES_OF_ONE_ORG_MAX)


@dataclass(frozen=True, slots=True)
class LlmContext:
    """The services that the llm routes use."""

    settings: Settings
    engine: Engine
    gate: Gate
    jobs: LlmJobs
    guard: Guard
    """For webhooks."""
    image_guard: Guard
    """For the images that workers fetch."""
    draining: ServerDraining
    callers: SynchronousCallers
    room: UploadSlots
    """For large bodies, with images; shared by all routes."""

    def check_configured(self) -> None:
        """Raises LlmNotConfigured if there is no target."""
        if not self.settings.llm_targets:
            raise LlmNotConfigured(
                "No language model is served here: set COATCHECK_LLM_URL to the base URL of an "
                "Ollama-shaped server, or COATCHECK_LLM_TARGETS to several, for servers and "
                "workers alike."
            )
