"""Registers graphs: archives of source code, analysed into graphs of calls, files and domains."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from coatcheck.product import Product, ProductContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.routing import Route
    from coatcheck.worker.worker import Worker

_log = logging.getLogger(__name__)


def _routes(context: ProductContext) -> Sequence[Route]:
    """Every route of the product."""
    from coatcheck.products.graphs import submit_routes
    from coatcheck.products.graphs.jobs import GraphsJobs

    server = context.server
    jobs = GraphsJobs(server)
    every = [*submit_routes.routes(jobs), *jobs.routes(), *jobs.receipt_routes()]
    return [replace(route, ignores_query=True) for route in every]


def _jobs(server: ServerContext) -> JobAdapter:
    from coatcheck.products.graphs.jobs import GraphsJobs

    return GraphsJobs(server)


@asynccontextmanager
async def _workers(context: WorkerContext) -> AsyncIterator[Sequence[Worker]]:
    if not context.settings.graphs_concurrency:
        yield []
        return
    from coatcheck.products.graphs import extra

    if not extra.is_installed():
        _log.info("this worker does not analyse code; to enable that, run %s", extra.HOW_TO_INSTALL)
        yield []
        return
    from coatcheck.products.graphs.executor import GraphExecutor

    async with GraphExecutor(context.settings, context.database) as graphs:
        yield [graphs.worker()]


PRODUCT = Product(
    name="graphs",
    services=("graphs",),
    routes=_routes,
    response_headers=("X-Api-Version", "X-Usage-Units"),
    jobs=_jobs,
    workers=_workers,
)
