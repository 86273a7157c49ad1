"""Batches: one request for many tasks, their runs, exports and staged lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ServerContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.control.job_desks import JobDesk
    from coatcheck.control.operations import Operation
    from coatcheck.control.parts import Parts
    from coatcheck.domain.webhooks import Tells
    from coatcheck.engine.notices import SubjectRenderer
    from coatcheck.upkeep.crew import MaintenanceContext
    from coatcheck.upkeep.loop import Loop
    from coatcheck.worker.agent import Worker


def _routes(context: ServerContext) -> Sequence[Operation]:
    from coatcheck.surfaces.batches import surface

    return surface.operations(context.parts)


def _job_adapter(parts: Parts) -> JobDesk:
    from coatcheck.surfaces.batches import surface

    return surface.desk(parts)


def _subject_payloads(parts: Parts) -> Mapping[Tells, SubjectRenderer]:
    from coatcheck.surfaces.batches import surface

    return surface.tellers(parts)


@asynccontextmanager
async def _workers(context: WorkerContext) -> AsyncIterator[Sequence[Worker]]:
    from coatcheck.surfaces.batches.executor import BatchExecutor

    async with BatchExecutor(context.settings, context.notifier) as batches:
        yield [batches.worker()]


def _maintenance(context: MaintenanceContext) -> Sequence[Loop]:
    from coatcheck.upkeep.batch_canceller import BatchCanceller
    from coatcheck.upkeep.batch_remover import BatchRemover
    from coatcheck.upkeep.batch_sweeper import BatchSweeper
    from coatcheck.upkeep.export_keeper import ExportKeeper
    from coatcheck.upkeep.reconciler import Reconciler
    from coatcheck.upkeep.run_completer import RunCompleter

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
