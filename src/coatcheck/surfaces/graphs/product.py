"""Graphs: archives of source code, analysed into graphs of calls, files and domains."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ServerContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.control.job_desks import JobDesk
    from coatcheck.control.operations import Operation
    from coatcheck.control.parts import Parts
    from coatcheck.engine.notices import JobRenderer
    from coatcheck.worker.agent import Worker

_log = logging.getLogger(__name__)


def _routes(context: ServerContext) -> Sequence[Operation]:
    from coatcheck.surfaces.graphs import surface

    return surface.operations(context.parts)


def _job_adapter(parts: Parts) -> JobDesk:
    from coatcheck.surfaces.graphs import surface

    return surface.desk(parts)


def _job_payload(parts: Parts) -> JobRenderer:
    from coatcheck.surfaces.graphs import surface

    return surface.teller(parts)


@asynccontextmanager
async def _workers(context: WorkerContext) -> AsyncIterator[Sequence[Worker]]:
    if not context.settings.graphs_concurrency:
        yield []
        return
    from coatcheck.surfaces.graphs import extra

    if not extra.is_installed():
        _log.info("this worker analyses no code: install it by %s", extra.HOW_TO_INSTALL)
        yield []
        return
    from coatcheck.surfaces.graphs.executor import GraphExecutor

    async with GraphExecutor(context.settings) as graphs:
        yield [graphs.worker(context.notifier)]


PRODUCT = Product(
    name="graphs",
    services=("graphs",),
    routes=_routes,
    response_headers=("X-Api-Version", "X-Usage-Units"),
    job_adapter=_job_adapter,
    job_payload=_job_payload,
    workers=_workers,
)
