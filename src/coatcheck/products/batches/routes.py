"""All routes of batches."""

from __future__ import annotations

from coatcheck.http.context import ServerContext
from coatcheck.http.routing import Route
from coatcheck.products.batches import (
    dead_letter_routes,
    export_routes,
    run_routes,
    submit_routes,
    task_routes,
)
from coatcheck.products.batches.jobs import BatchJobs
from coatcheck.products.batches.task_lists import TaskListReader


def routes(server: ServerContext) -> list[Route]:
    """Every route of batches."""
    jobs = BatchJobs(server)
    lists = TaskListReader(server.engine, server.settings.batch_small_tasks)
    return [
        *submit_routes.routes(jobs, lists),
        *jobs.routes(),
        *task_routes.routes(jobs, lists),
        *task_routes.file_routes(jobs),
        *run_routes.routes(jobs),
        *submit_routes.upload_routes(jobs),
        *export_routes.routes(jobs),
        *dead_letter_routes.routes(jobs),
    ]
