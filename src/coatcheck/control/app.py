"""The control plane's composition root: every route, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coatcheck.control.dispatch import Dispatcher
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.control.routes import (
    api_keys,
    blobs,
    docs,
    health,
    metrics,
    openapi,
    remote_callbacks,
    stripe,
    usage,
    webhooks,
)
from coatcheck.telemetry.metrics import QueueDepth
from coatcheck.version import __version__

Surface = Callable[[Parts], Sequence[Operation]]
"""Makes a surface's routes on the control plane's parts."""


def create_app(parts: Parts, surfaces: Sequence[Surface] = ()) -> Dispatcher:
    """The application that ``coatcheck serve`` runs."""

    async def queue_depth() -> QueueDepth:
        return (await parts.engine.health()).depth

    operations = [
        *health.operations(parts.readiness.checks()),
        *metrics.operations(queue_depth),
        *usage.operations(parts.engine),
        *api_keys.operations(parts.settings, parts.tenants),
        *stripe.operations(parts.settings, parts.tenants),
        *webhooks.operations(parts.engine.webhooks, parts.receivers, parts.tenants),
        *blobs.operations(parts.engine, parts.tenants),
        *remote_callbacks.operations(parts.remote_calls),
    ]
    for surface in surfaces:
        operations += surface(parts)
    operations += docs.operations()
    operations.append(openapi.operation(operations, version=__version__))
    return Dispatcher(operations, parts.gate.admit)
