"""Webhook payloads of llm jobs.

A receiver of every state (``state_webhook_url``) gets each one by this product's name, flat and
without an envelope, as of the event. Other receivers get what all products send: the job as it is
now, in an envelope.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coatcheck.core import Engine
from coatcheck.core.webhook_payloads import WholeBody
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import Artifact, JobView
from coatcheck.domain.limits import SIGNED_URL_SECONDS_MAX
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.products.llm import schemas
from coatcheck.products.llm.model import CANCELLED, stored_answer

if TYPE_CHECKING:
    from coatcheck.products.llm.jobs import LlmJobs

ARTIFACT_INLINE_BYTES_MAX: Final = 256 * 1024
ARTIFACTS_INLINE_BYTES_MAX: Final = 1024 * 1024
"""For all artifacts of a job together. Those beyond it are sent by URL, however small."""

_PHASE: Final = "phase"


class PayloadArtifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of the job: its bytes, or the URL to fetch a large one from."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    content_base64: str | None = None
    url: str | None = None


class PayloadState(msgspec.Struct, frozen=True):
    """A new state of a job. ``error`` is why it failed, or why it is queued again. ``result`` comes
    with ``done``, unless it is too long: then ``artifacts`` has it.

    ``expired``: the job's retention has ended, and nothing more of it is left.
    """

    type: str
    timestamp: datetime
    job_id: str
    state: schemas.LlmState
    previous_state: schemas.LlmState
    model: str
    attempt: int
    error: schemas.Error | None
    result: msgspec.Raw | None
    artifacts: list[PayloadArtifact]
    expired: bool | msgspec.UnsetType = msgspec.UNSET


class ExpiredChat(msgspec.Struct, frozen=True):
    """A job whose retention ended before its webhook was delivered. ``expired`` is true."""

    job_id: str
    state: schemas.LlmState
    model: str
    attempt: int
    error: schemas.Error | None
    terminal: bool
    expired: bool = True


async def render(jobs: LlmJobs, event: DeliveryEvent, view: JobView | None) -> Any:
    """The payload of an event, for ``core/webhook_payloads.py``."""
    if event.facts.get("as") == _PHASE:
        return WholeBody(await _state(jobs, event, view))
    return _expired(event) if view is None else await jobs.show(view)


async def _state(jobs: LlmJobs, event: DeliveryEvent, view: JobView | None) -> PayloadState:
    facts = event.facts
    state = _state_name(facts["state"])
    before = await jobs.engine.webhooks.previous_facts(event)
    result = None
    artifacts: list[PayloadArtifact] = []
    if view is not None and state is schemas.LlmState.DONE:
        stored = stored_answer(view)
        if stored is not None and not stored.artifact:
            result = stored.inline
        artifacts = await _artifacts(jobs, view)
    return PayloadState(
        type=f"job.{state.value}",
        timestamp=event.at,
        job_id=to_text(event.subject),
        state=state,
        previous_state=schemas.LlmState.QUEUED if before is None else _state_name(before["state"]),
        model=facts["flow"],
        attempt=facts["attempt"],
        error=_error(event, view),
        result=result,
        artifacts=artifacts,
        expired=msgspec.UNSET if view is not None else True,
    )


def _state_name(state: str) -> schemas.LlmState:
    """This product's name of a state. A claim is sent only if a model must be loaded."""
    return schemas.llm_state(State(state), loading=True)


def _error(event: DeliveryEvent, view: JobView | None) -> schemas.Error | None:
    """The error. The code is as of the event; the message is the job's, if the code still is."""
    if event.facts["state"] == State.CANCELLED:
        return schemas.Error.of("cancelled", CANCELLED)
    code = event.facts.get("error_code")
    if code is None:
        return None
    known = view is not None and view.error_code == code
    return schemas.Error.of(code, view.error_message if view is not None and known else None)


async def _artifacts(jobs: LlmJobs, view: JobView) -> list[PayloadArtifact]:
    payloads = []
    room = ARTIFACTS_INLINE_BYTES_MAX
    for artifact in await jobs.artifacts(view):
        content = url = None
        if artifact.size <= min(room, ARTIFACT_INLINE_BYTES_MAX):
            content = await _content(jobs.engine, artifact)
        if content is None:
            url = await _signed(jobs.engine, view, artifact)
        else:
            room -= artifact.size
        payloads.append(
            PayloadArtifact(
                name=artifact.name,
                media_type=artifact.media_type,
                bytes=artifact.size,
                sha256=artifact.sha256.hex(),
                content_base64=content,
                url=url,
            )
        )
    return payloads


async def _content(engine: Engine, artifact: Artifact) -> str | None:
    try:
        pieces = [piece async for piece in engine.read_artifact(artifact)]
    except FileNotFoundError:
        return None  # its job's retention has just ended
    return base64.b64encode(b"".join(pieces)).decode()


async def _signed(engine: Engine, view: JobView, artifact: Artifact) -> str | None:
    """A URL that is valid as long as the artifact is kept, up to the longest a URL may be."""
    if view.expires_at is None:
        return None
    seconds = int((view.expires_at - datetime.now(UTC)).total_seconds())
    if seconds < 1:
        return None
    signed = await engine.sign_artifact(artifact, min(seconds, SIGNED_URL_SECONDS_MAX))
    return signed.url


def _expired(event: DeliveryEvent) -> ExpiredChat:
    facts = event.facts
    state = State(facts["state"])
    return ExpiredChat(
        job_id=to_text(event.subject),
        state=schemas.llm_state(state, loading=False),
        model=facts["flow"],
        attempt=facts["attempt"],
        error=_error(event, None),
        terminal=state.terminal,
    )
