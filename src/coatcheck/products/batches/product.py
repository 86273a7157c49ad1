"""Registers the batches product: jobs of many tasks, with their runs, exports and uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ProductContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.core.webhook_payloads import SubjectRenderer
    from coatcheck.domain.webhooks import SubjectKind
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.routing import Route
    from coatcheck.maintenance.loop import Loop
    from coatcheck.maintenance.runner import MaintenanceContext
    from coatcheck.worker.worker import Worker


def _routes(context: ProductContext) -> Sequence[Route]:
    """Every route of batches."""
    from coatcheck.products.batches import run_routes, submit_routes, task_routes
    from coatcheck.products.batches.jobs import BatchJobs

    jobs = BatchJobs(context.server)
    return [
        *submit_routes.routes(jobs),
        *jobs.routes(),
        *task_routes.routes(jobs),
        *run_routes.routes(jobs),
    ]


def _jobs(server: ServerContext) -> JobAdapter:
    from coatcheck.products.batches.jobs import BatchesJobAdapter

    return BatchesJobAdapter(server)


def _subject_payloads(server: ServerContext) -> Mapping[SubjectKind, SubjectRenderer]:
    from coatcheck.products.batches import webhook_payloads

    return webhook_payloads.renderers(server.engine)


@asynccontextmanager
async def _workers(context: WorkerContext) -> AsyncIterator[Sequence[Worker]]:
    from coatcheck.products.batches.executor import BatchExecutor

    async with BatchExecutor(context.settings, context.database) as batches:
        yield [batches.worker()]


def _maintenance(context: MaintenanceContext) -> Sequence[Loop]:
    from coatcheck.products.batches.maintenance import (
        BatchCanceller,
        BatchRemover,
        BatchSweeper,
        ExportExpirer,
        IngestReconciler,
        RunCompleter,
    )

    db, notifier, blobs = context.db, context.notifier, context.blobs
    return [
        RunCompleter(db, notifier),
        BatchCanceller(db, notifier),
        BatchRemover(db, notifier, blobs),
        ExportExpirer(db, blobs, keep_seconds=context.settings.batch_url_seconds),
        IngestReconciler(db, notifier),
        BatchSweeper(db, blobs),
    ]


PRODUCT = Product(
    name="batches",
    services=("batches",),
    routes=_routes,
    jobs=_jobs,
    subject_payloads=_subject_payloads,
    adapts_grouped_jobs=True,
    workers=_workers,
    maintenance=_maintenance,
)
