"""The built-in service of speech, whose jobs hand their work over to the remote."""

from __future__ import annotations

from coatcheck.domain.remote_work import RemoteWork
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX
from coatcheck.job import Job
from coatcheck.products.speech.model import SPEECH_PATHS, SPEECH_SERVICE
from coatcheck.service import Service


def speech_service() -> Service:
    """Make the service, for the worker that makes remote calls."""
    speech = Service(SPEECH_SERVICE, product="speech")
    for path in SPEECH_PATHS.values():

        @speech.post(path, timeout=TIMEOUT_SECONDS_MAX)
        async def hand_over(job: Job, work: RemoteWork) -> None:
            await job.hand_over(work)

    return speech
