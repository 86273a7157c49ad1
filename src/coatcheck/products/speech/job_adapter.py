"""The console's adapter for speech tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from coatcheck.core import Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import InputNotKept, InvalidInput, JobNotEnded, NotRetryable
from coatcheck.domain.ids import to_text
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.http.job_adapters import JobAdapter, JobLabel, JobPaths, RetryRequest
from coatcheck.products.speech.context import SpeechContext, stored_key
from coatcheck.products.speech.errors import SpeechNotConfigured, VoiceNotFound
from coatcheck.products.speech.model import (
    SPEECH_SERVICE,
    SPEECH_TYPES,
    SpeechReader,
    SpeechType,
    StoredSpeechTask,
    user_of,
)
from coatcheck.products.speech.presenter import task_urls
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.products.speech.submit_routes import SpeechRequest, SpeechSubmitRoutes

_encode: Final = msgspec.json.Encoder().encode
_LABELS: Final = {
    SpeechType.GENERATE: "speak",
    SpeechType.DESIGN_PREVIEW: "preview a design",
    SpeechType.CLONE: "clone a voice",
}


class SpeechJobAdapter(JobAdapter):
    """Adapts tasks that a remote speaks. A retry is a new generation of the same text."""

    product = "speech"

    def __init__(self, context: SpeechContext) -> None:
        super().__init__(context.engine, context.remote_calls)
        self._submitting = SpeechSubmitRoutes(context)

    async def label(self, job: OrgJob, /) -> JobLabel:
        return JobLabel(SPEECH_SERVICE, _LABELS[SPEECH_TYPES[job.view.endpoint]])

    def paths(self, job: OrgJob) -> JobPaths:
        return JobPaths(task_urls(job.id).poll)

    async def input(self, job: OrgJob) -> bytes:
        await super().input(job)  # raises InputNotKept once the input is deleted
        work = _request_of(await self._task(job))
        given = {
            "description": work.description,
            "voice_id": work.voice_id,
            "transcript" if work.type is SpeechType.CLONE else "text": work.text or None,
            "language": work.language,
            "clone_id": work.clone_id,
        }
        return _encode({name: value for name, value in given.items() if value is not None})

    async def retry(self, job: OrgJob, order: RetryRequest) -> Ticket:
        if not job.view.terminal:
            raise JobNotEnded("The task has not ended; it can be retried once it has failed.")
        if not job.is_unsuccessful:
            raise InputNotKept("The task has completed. To speak the text again, submit it again.")
        reader, task = self._reader(job), await self._task(job)
        work = _request_of(task)
        try:
            sources = await self._submitting.find_sources(reader, work, order.idempotency_key)
            # Signed URLs expire, so the payload gets a new URL of the voice.
            payload = await self._submitting.payload(work, sources)
            return await self._engine.extension(OrgJobRepository).retry(
                job,
                idempotency_key=order.idempotency_key,
                request_id=order.request_id,
                send=self._engine.extension(SpeechRepository).retrying(
                    reader, job.uuid, task.spoken.voice, payload
                ),
            )
        except VoiceNotFound:
            raise NotRetryable(
                "The task's voice was deleted; submit the text with another voice."
            ) from None
        except InvalidInput:
            raise NotRetryable(
                "The task's clone no longer exists; clone the voice again."
            ) from None
        except SpeechNotConfigured as error:
            raise NotRetryable(str(error)) from None

    async def _task(self, job: OrgJob) -> StoredSpeechTask:
        return await self._engine.extension(SpeechRepository).task(self._reader(job), job.id)

    @staticmethod
    def _reader(job: OrgJob) -> SpeechReader:
        return SpeechReader(job.view.org, user_of(job.view.owner) or "")

    def stored_keys(self, principal: Principal, key: str, /) -> Sequence[str]:
        return [stored_key(principal, key)]


def _request_of(task: StoredSpeechTask) -> SpeechRequest:
    """The request that a stored task was created for."""
    spoken = task.spoken
    return SpeechRequest(
        task.type,
        spoken.language,
        spoken.text,
        voice_id=None if spoken.voice is None else to_text(spoken.voice),
        description=spoken.description,
        clone_id=None if spoken.clone is None else to_text(spoken.clone),
    )
