"""The routes of the graphs surface, put together."""

from __future__ import annotations

from dataclasses import replace

from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.engine.notices import JobRenderer
from coatcheck.surfaces.graphs import artifacts, reading, submitting, telling
from coatcheck.surfaces.graphs.desk import GraphsDesk
from coatcheck.surfaces.graphs.scene import Scene
from coatcheck.surfaces.graphs.voice import GraphsVoice


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
