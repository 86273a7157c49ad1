"""The routes of the llm surface, put together."""

from __future__ import annotations

from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.engine.notices import JobRenderer
from coatcheck.surfaces.llm import (
    artifacts,
    openai,
    passthrough,
    reading,
    submitting,
    telling,
)
from coatcheck.surfaces.llm.caller_retries import SynchronousCallers
from coatcheck.surfaces.llm.desk import LlmDesk
from coatcheck.surfaces.llm.fetched_images import image_guard
from coatcheck.surfaces.llm.scene import Scene
from coatcheck.surfaces.llm.voice import LlmVoice


def operations(parts: Parts) -> list[Operation]:
    """Every route of the surface, on the control plane's parts."""
    scene = Scene(
        settings=parts.settings,
        engine=parts.engine,
        gate=parts.gate,
        answers=parts.answers,
        voice=LlmVoice(parts.engine),
        guard=parts.receivers,
        image_guard=image_guard(parts.settings),
        draining=parts.draining,
        callers=SynchronousCallers(
            parts.engine, cancels_abandoned=parts.settings.llm_cancel_abandoned
        ),
    )
    return [
        *submitting.operations(scene),
        *reading.operations(scene),
        *artifacts.operations(parts, scene),
        *passthrough.operations(scene),
        *openai.operations(scene),
    ]


def desk(parts: Parts) -> JobDesk:
    """Who speaks for the surface's jobs where all jobs are looked after."""
    return LlmDesk(parts.engine, parts.remote_calls)


def teller(parts: Parts) -> JobRenderer:
    """What webhooks say of the surface's jobs."""
    return telling.renderer(parts.engine, LlmVoice(parts.engine))
