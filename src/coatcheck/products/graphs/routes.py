"""All routes of graphs."""

from __future__ import annotations

from dataclasses import replace

from coatcheck.http.context import ServerContext
from coatcheck.http.routing import Route
from coatcheck.products.graphs import submit_routes
from coatcheck.products.graphs.jobs import GraphsJobs


def routes(server: ServerContext) -> list[Route]:
    """Every route of the product."""
    jobs = GraphsJobs(server)
    every = [*submit_routes.routes(jobs), *jobs.routes(), *jobs.receipt_routes()]
    return [replace(route, ignores_query=True) for route in every]
