"""Speaks for the tasks of the speech surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from coatcheck.control.job_desks import (
    JobDesk,
    JobLabel,
    JobPlaces,
    RetryOrder,
    SurfaceName,
)
from coatcheck.domain.console import ConsoleJob
from coatcheck.domain.endpoint_names import SPEECH_SERVICE
from coatcheck.domain.errors import InputNotKept, JobNotEnded, NotRetryable, VoiceNotFound
from coatcheck.domain.identity import Principal
from coatcheck.domain.ids import to_text
from coatcheck.domain.speech import Reader, SpeechTask, Voice, user_of
from coatcheck.engine import Ticket
from coatcheck.surfaces.speech.scene import Scene, stored_key
from coatcheck.surfaces.speech.showing import task_urls
from coatcheck.surfaces.speech.submitting import Submitting

_encode: Final = msgspec.json.Encoder().encode


class SpeechDesk(JobDesk):
    """Texts that are spoken elsewhere: done again, one is a new generation of the same text."""

    surface: ClassVar[SurfaceName] = "speech"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.engine, scene.remote_calls)
        self._submitting = Submitting(scene)

    async def label(self, _: ConsoleJob, /) -> JobLabel:
        return JobLabel(SPEECH_SERVICE, "speak")

    def places(self, job: ConsoleJob) -> JobPlaces:
        return JobPlaces(task_urls(job.id).poll)

    async def input(self, job: ConsoleJob) -> bytes:
        await super().input(job)  # it is shown for as long as it is kept
        spoken = (await self._task(job)).spoken
        return _encode(
            {"voice_id": to_text(spoken.voice), "text": spoken.text, "language": spoken.language}
        )

    async def retry(self, job: ConsoleJob, order: RetryOrder) -> Ticket:
        if not job.view.terminal:
            raise JobNotEnded("The task goes on; it is retried once it has failed.")
        if not job.has_come_to_nothing:
            raise InputNotKept("The text was spoken. To have it spoken again, hand it in again.")
        reader, spoken = self._reader(job), (await self._task(job)).spoken
        voice_id = to_text(spoken.voice)
        try:
            voice = await self._voice(reader, voice_id, order.idempotency_key)
            # URLs are signed for a time: where the voice is heard is said anew.
            payload = await self._submitting.payload(spoken.text, spoken.language, voice_id, voice)
            return await self._engine.console.retry(
                job,
                idempotency_key=order.idempotency_key,
                request_id=order.request_id,
                send=self._engine.speech.retrying(reader, job.uuid, spoken.voice, payload),
            )
        except VoiceNotFound:
            raise NotRetryable(
                "The voice that was to speak was deleted; hand the text in with another one."
            ) from None

    async def _voice(self, reader: Reader, voice_id: str, key: str | None) -> Voice | None:
        """The voice. It may be gone by now if the key is known: that retry was made with it."""
        try:
            return await self._engine.speech.voice(reader, voice_id)
        except VoiceNotFound:
            if key is None or not await self._engine.knows_key(key, org=reader.org):
                raise
            return None

    async def _task(self, job: ConsoleJob) -> SpeechTask:
        return await self._engine.speech.task(self._reader(job), job.id)

    @staticmethod
    def _reader(job: ConsoleJob) -> Reader:
        return Reader(job.view.org, user_of(job.view.owner) or "")

    def stored_keys(self, principal: Principal, key: str, /) -> Sequence[str]:
        return [stored_key(principal, key)]
