"""Assembles the gateway's routes, job adapter and webhook renderer."""

from __future__ import annotations

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.http.routing import Route
from coatcheck.products.gateway import (
    read_routes,
    registration_routes,
    submit_routes,
    webhook_payloads,
)
from coatcheck.products.gateway.context import GatewayContext
from coatcheck.products.gateway.job_adapter import GatewayJobAdapter


def routes(server: ServerContext) -> list[Route]:
    """Every route of the gateway."""
    context = _context(server)
    return [
        *submit_routes.routes(context),
        *read_routes.routes(context),
        *read_routes.file_routes(server, context),
        *registration_routes.routes(context),
    ]


def payload_renderer(server: ServerContext) -> JobRenderer:
    """Renders the gateway's jobs for webhooks."""
    return webhook_payloads.renderer(_context(server))


def job_adapter(server: ServerContext) -> JobAdapter:
    """Adapts the gateway's jobs for the console."""
    return GatewayJobAdapter(_context(server))


def _context(server: ServerContext) -> GatewayContext:
    return GatewayContext(
        settings=server.settings,
        engine=server.engine,
        catalogue=server.catalogue,
        gate=server.gate,
        responses=server.responses,
        guard=server.guard,
        receivers=server.receivers,
        remote_calls=server.remote_calls,
    )
