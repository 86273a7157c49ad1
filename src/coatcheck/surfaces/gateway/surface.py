"""The gateway's routes, put together."""

from __future__ import annotations

from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.engine.notices import JobRenderer
from coatcheck.surfaces.gateway import artifacts, reading, registering, submitting, telling
from coatcheck.surfaces.gateway.desk import GatewayDesk
from coatcheck.surfaces.gateway.scene import Scene


def operations(parts: Parts) -> list[Operation]:
    """Every route of the gateway, on the control plane's parts."""
    scene = _scene(parts)
    return [
        *submitting.operations(scene),
        *reading.operations(scene),
        *artifacts.operations(parts, scene),
        *registering.operations(scene),
    ]


def teller(parts: Parts) -> JobRenderer:
    """What webhooks say of the gateway's jobs."""
    return telling.renderer(_scene(parts))


def desk(parts: Parts) -> JobDesk:
    """Who speaks for the gateway's jobs where all jobs are looked after."""
    return GatewayDesk(_scene(parts))


def _scene(parts: Parts) -> Scene:
    return Scene(
        settings=parts.settings,
        engine=parts.engine,
        catalogue=parts.catalogue,
        gate=parts.gate,
        answers=parts.answers,
        guard=parts.guard,
        receivers=parts.receivers,
        remote_calls=parts.remote_calls,
    )
