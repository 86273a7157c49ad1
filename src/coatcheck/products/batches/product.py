"""Batches: one request for many tasks, their runs, exports and staged lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ServerContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.core.webhook_payloads import SubjectRenderer
    from coatcheck.domain.webhooks import Tells
    from coatcheck.http.context import Parts
    from coatcheck.http.job_adapters import JobDesk
    from coatcheck.http.routing import Operation
    from coatcheck.maintenance.loop import Loop
    from coatcheck.maintenance.runner import MaintenanceContext
    from coatcheck.worker.worker import Worker


def _routes(context: ServerContext) -> Sequence[Operation]:
    from coatcheck.products.batches import routes as surface

    return surface.operations(context.parts)


def _job_adapter(parts: Parts) -> JobDesk:
    from coatcheck.products.batches import routes as surface

    return surface.desk(parts)


def _subject_payloads(parts: Parts) -> Mapping[Tells, SubjectRenderer]:
    from coatcheck.products.batches import routes as surface

    return surface.tellers(parts)


@asynccontextmanager
async def _workers(context: WorkerContext) -> AsyncIterator[Sequence[Worker]]:
    from coatcheck.products.batches.executor import BatchExecutor

    async with BatchExecutor(context.settings, context.notifier) as batches:
        yield [batches.worker()]


def _maintenance(context: MaintenanceContext) -> Sequence[Loop]:
    from coatcheck.products.batches.blob_sweeper import BatchSweeper
    from coatcheck.products.batches.canceller import BatchCanceller
    from coatcheck.products.batches.export_expirer import ExportKeeper
    from coatcheck.products.batches.ingest_reconciler import Reconciler
    from coatcheck.products.batches.remover import BatchRemover
    from coatcheck.products.batches.run_completer import RunCompleter

    line, notifier, blobs = context.line, context.notifier, context.blobs
    return [
        RunCompleter(line, notifier),
        BatchCanceller(line, notifier),
        BatchRemover(line, notifier, blobs),
        ExportKeeper(line, blobs, keep_seconds=context.settings.batch_url_seconds),
        Reconciler(line, notifier),
        BatchSweeper(line, blobs),
    ]


PRODUCT = Product(
    name="batches",
    services=("batches",),
    routes=_routes,
    job_adapter=_job_adapter,
    subject_payloads=_subject_payloads,
    adapts_grouped_jobs=True,
    workers=_workers,
    maintenance=_maintenance,
)
