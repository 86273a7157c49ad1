"""Collects the routes, the job adapter and the webhook renderers of batches."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.core.webhook_payloads import SubjectRenderer
from coatcheck.domain.webhooks import SubjectKind
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.http.routing import Route
from coatcheck.products.batches import (
    dead_letter_routes,
    explain,
    export_routes,
    read_routes,
    run_routes,
    submit_routes,
    task_routes,
    webhook_payloads,
)
from coatcheck.products.batches.context import BatchesContext
from coatcheck.products.batches.job_adapter import BatchesJobAdapter
from coatcheck.products.batches.responses import BatchResponses
from coatcheck.products.batches.task_lists import TaskListReader


def routes(server: ServerContext) -> list[Route]:
    """Every route of batches."""
    context = BatchesContext(
        settings=server.settings,
        engine=server.engine,
        catalogue=server.catalogue,
        gate=server.gate,
        guard=server.receivers,
        draining=server.draining,
        large=server.responses.large,
    )
    responses = BatchResponses(server.engine, server.draining, server.gate)
    lists = TaskListReader(server.engine, server.settings.batch_small_tasks)
    return [
        *submit_routes.routes(context, responses, lists),
        *read_routes.routes(context, responses),
        *task_routes.routes(context, responses, lists),
        *explain.routes(context, server.responses),
        *task_routes.file_routes(server, context),
        *run_routes.routes(context, responses),
        *submit_routes.upload_routes(context),
        *export_routes.routes(context),
        *dead_letter_routes.routes(context),
    ]


def job_adapter(server: ServerContext) -> JobAdapter:
    """Shows tasks in the console and the dashboard, among the jobs of all products."""
    return BatchesJobAdapter(server.engine, server.remote_calls)


def payload_renderers(server: ServerContext) -> Mapping[SubjectKind, SubjectRenderer]:
    """Renders the webhook payloads of batches and their tasks."""
    return webhook_payloads.renderers(server.engine)
