"""The routes of the speech surface, put together."""

from __future__ import annotations

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.artifacts import OwnedJobs, artifact_operations
from coatcheck.http.context import Parts
from coatcheck.http.job_adapters import JobDesk
from coatcheck.http.routing import ULID, Operation, Parameter
from coatcheck.products.speech import generation_routes as generations
from coatcheck.products.speech import read_routes as reading
from coatcheck.products.speech import submit_routes as submitting
from coatcheck.products.speech import voice_routes as voices
from coatcheck.products.speech import webhook_payloads as telling
from coatcheck.products.speech.context import Scene
from coatcheck.products.speech.job_adapter import SpeechDesk
from coatcheck.products.speech.model import SPEECH_TYPES
from coatcheck.products.speech.presenter import task_urls


def operations(parts: Parts) -> list[Operation]:
    """Every route of the surface, on the control plane's parts."""
    scene = _scene(parts)
    return [
        *voices.operations(scene),
        *submitting.operations(scene),
        *reading.operations(scene),
        *generations.operations(scene),
        *artifact_operations(
            parts,
            OwnedJobs(
                parts.engine, scene.job, lambda job_id: task_urls(job_id).poll, set(SPEECH_TYPES)
            ),
            path=reading.TASK,
            name="speech_task",
            tag=submitting.TAG,
            parameters=(Parameter("id", "path", "The task's id.", ULID),),
        ),
    ]


def desk(parts: Parts) -> JobDesk:
    """Who speaks for the surface's tasks where all jobs are looked after."""
    return SpeechDesk(_scene(parts))


def teller(parts: Parts) -> JobRenderer:
    """What webhooks say of the surface's tasks."""
    return telling.renderer(parts.engine)


def _scene(parts: Parts) -> Scene:
    return Scene(
        settings=parts.settings,
        engine=parts.engine,
        gate=parts.gate,
        answers=parts.answers,
        remote_calls=parts.remote_calls,
        guard=parts.receivers,
    )
