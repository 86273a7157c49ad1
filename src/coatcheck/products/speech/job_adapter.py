"""Speaks for the tasks of the speech surface."""

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
from coatcheck.products.speech.submit_routes import SpeechOrder, SpeechSubmitRoutes

_encode: Final = msgspec.json.Encoder().encode
_LABELS: Final = {
    SpeechType.GENERATE: "speak",
    SpeechType.DESIGN_PREVIEW: "preview a design",
    SpeechType.CLONE: "clone a voice",
}


class SpeechJobAdapter(JobAdapter):
    """Texts that are spoken elsewhere: done again, one is a new generation of the same text."""

    surface = "speech"

    def __init__(self, context: SpeechContext) -> None:
        super().__init__(context.engine, context.remote_calls)
        self._submitting = SpeechSubmitRoutes(context)

    async def label(self, job: OrgJob, /) -> JobLabel:
        return JobLabel(SPEECH_SERVICE, _LABELS[SPEECH_TYPES[job.view.endpoint]])

    def places(self, job: OrgJob) -> JobPaths:
        return JobPaths(task_urls(job.id).poll)

    async def input(self, job: OrgJob) -> bytes:
        await super().input(job)  # it is shown for as long as it is kept
        order = _order(await self._task(job))
        given = {
            "description": order.description,
            "voice_id": order.voice_id,
            "transcript" if order.type is SpeechType.CLONE else "text": order.text or None,
            "language": order.language,
            "clone_id": order.clone_id,
        }
        return _encode({name: value for name, value in given.items() if value is not None})

    async def retry(self, job: OrgJob, order: RetryRequest) -> Ticket:
        if not job.view.terminal:
            raise JobNotEnded("The task goes on; it is retried once it has failed.")
        if not job.has_come_to_nothing:
            raise InputNotKept("The text was spoken. To have it spoken again, hand it in again.")
        reader, task = self._reader(job), await self._task(job)
        work = _order(task)
        try:
            material = await self._submitting.material(reader, work, order.idempotency_key)
            # URLs are signed for a time: where the voice is heard is said anew.
            payload = await self._submitting.payload(work, material)
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
                "The voice that was to speak was deleted; hand the text in with another one."
            ) from None
        except InvalidInput:
            raise NotRetryable(
                "The clone that was to speak is not kept any more; clone the voice again."
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


def _order(task: StoredSpeechTask) -> SpeechOrder:
    """What a task was to do."""
    spoken = task.spoken
    return SpeechOrder(
        task.type,
        spoken.language,
        spoken.text,
        voice_id=None if spoken.voice is None else to_text(spoken.voice),
        description=spoken.description,
        clone_id=None if spoken.clone is None else to_text(spoken.clone),
    )
