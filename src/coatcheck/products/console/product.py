"""Registers the console: all jobs of an organisation, whichever product they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coatcheck.product import Product, ProductContext

if TYPE_CHECKING:
    from coatcheck.http.routing import Route


def _routes(context: ProductContext) -> Sequence[Route]:
    """Every route of the console. Each product that is on shows its own jobs."""
    from coatcheck.products.console import action_routes, list_routes, operator_routes
    from coatcheck.products.console.jobs import OrgJobs

    server = context.server
    jobs = OrgJobs(server)
    return [
        *list_routes.routes(jobs),
        *jobs.routes(),
        *action_routes.routes(jobs),
        *operator_routes.routes(server.tenants),
    ]


PRODUCT = Product(name="console", routes=_routes)
