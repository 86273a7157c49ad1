"""The routes of the llm surface, put together."""

from __future__ import annotations

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.context import Parts
from coatcheck.http.job_adapters import JobDesk
from coatcheck.http.routing import Operation
from coatcheck.products.llm import artifacts, passthrough
from coatcheck.products.llm import read_routes as reading
from coatcheck.products.llm import submit_routes as submitting
from coatcheck.products.llm import webhook_payloads as telling
from coatcheck.products.llm.caller_retries import SynchronousCallers
from coatcheck.products.llm.context import Scene
from coatcheck.products.llm.fetched_images import image_guard
from coatcheck.products.llm.job_adapter import LlmDesk
from coatcheck.products.llm.openai import routes as openai
from coatcheck.products.llm.presenter import LlmVoice


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
