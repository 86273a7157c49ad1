"""The routes of the speech surface, put together."""

from __future__ import annotations

from coatcheck.control.artifact_answers import OwnedJobs, artifact_operations
from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import ULID, Operation, Parameter
from coatcheck.control.parts import Parts
from coatcheck.domain.speech import SPEECH_TYPES
from coatcheck.engine.notices import JobRenderer
from coatcheck.surfaces.speech import generations, reading, submitting, telling, voices
from coatcheck.surfaces.speech.desk import SpeechDesk
from coatcheck.surfaces.speech.scene import Scene
from coatcheck.surfaces.speech.showing import task_urls


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
