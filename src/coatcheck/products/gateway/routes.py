"""The gateway's routes, put together."""

from __future__ import annotations

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.context import Parts
from coatcheck.http.job_adapters import JobDesk
from coatcheck.http.routing import Operation
from coatcheck.products.gateway import artifacts
from coatcheck.products.gateway import read_routes as reading
from coatcheck.products.gateway import registration_routes as registering
from coatcheck.products.gateway import submit_routes as submitting
from coatcheck.products.gateway import webhook_payloads as telling
from coatcheck.products.gateway.context import Scene
from coatcheck.products.gateway.job_adapter import GatewayDesk


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
