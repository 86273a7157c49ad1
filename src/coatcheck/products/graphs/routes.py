"""The routes of the graphs surface, put together."""

from __future__ import annotations

from dataclasses import replace

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.context import Parts
from coatcheck.http.job_adapters import JobDesk
from coatcheck.http.routing import Operation
from coatcheck.products.graphs import artifacts
from coatcheck.products.graphs import read_routes as reading
from coatcheck.products.graphs import submit_routes as submitting
from coatcheck.products.graphs import webhook_payloads as telling
from coatcheck.products.graphs.context import Scene
from coatcheck.products.graphs.job_adapter import GraphsDesk
from coatcheck.products.graphs.presenter import GraphsVoice


def operations(parts: Parts) -> list[Operation]:
    """Every route of the surface, on the control plane's parts."""
    scene = Scene(
        settings=parts.settings,
        engine=parts.engine,
        gate=parts.gate,
        answers=parts.answers,
        voice=_voice(parts),
        guard=parts.receivers,
    )
    routes = [
        *submitting.operations(scene),
        *reading.operations(scene),
        *artifacts.operations(parts, scene),
    ]
    return [replace(route, ignores_query=True) for route in routes]


def teller(parts: Parts) -> JobRenderer:
    """What webhooks say of the surface's jobs."""
    return telling.renderer(_voice(parts))


def desk(parts: Parts) -> JobDesk:
    """Who speaks for the surface's jobs where all jobs are looked after."""
    return GraphsDesk(parts.engine, parts.remote_calls)


def _voice(parts: Parts) -> GraphsVoice:
    return GraphsVoice(parts.engine, parts.answers, parts.settings.graphs_retry_after_seconds)
