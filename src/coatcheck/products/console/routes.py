"""All routes of the console."""

from __future__ import annotations

from coatcheck.http.routing import Route
from coatcheck.product import ProductContext
from coatcheck.products.console import action_routes, list_routes, operator_routes
from coatcheck.products.console.jobs import OrgJobs


def routes(context: ProductContext) -> list[Route]:
    """Every route of the console. Each product that is on shows its own jobs."""
    server = context.server
    jobs = OrgJobs(server)
    return [
        *list_routes.routes(jobs),
        *jobs.routes(),
        *action_routes.routes(jobs),
        *operator_routes.routes(server.tenants),
    ]
