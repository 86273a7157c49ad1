"""All routes of the gateway."""

from __future__ import annotations

from coatcheck.http.context import ServerContext
from coatcheck.http.routing import Route
from coatcheck.products.gateway import registration_routes, submit_routes
from coatcheck.products.gateway.jobs import GatewayJobs


def routes(server: ServerContext) -> list[Route]:
    """Every route of the gateway."""
    jobs = GatewayJobs(server)
    return [
        *submit_routes.routes(jobs),
        *jobs.routes(),
        *jobs.list_routes(),
        *registration_routes.routes(jobs),
    ]
