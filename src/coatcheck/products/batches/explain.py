"""Explains why a job or a task has not ended."""

from __future__ import annotations

from datetime import UTC, datetime

from coatcheck.domain.ids import to_text
from coatcheck.http.explanations import explain_route
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.http.response import Response
from coatcheck.http.routing import Route
from coatcheck.products.batches.context import BatchesContext
from coatcheck.products.batches.explain_run import explain_run, with_task_id
from coatcheck.products.batches.read_routes import JOB, JOB_ID
from coatcheck.products.batches.responses import retry_after
from coatcheck.products.batches.task_routes import TASK_ID, TASK_PATH


class ExplainRoutes:
    """The routes that explain jobs and tasks."""

    def __init__(self, context: BatchesContext, responses: JobResponses) -> None:
        self._context = context
        self._responses = responses

    async def job(self, request: Request) -> Response:
        """Explain the current run: what blocks the next of its tasks."""
        view = await self._context.job(request)
        run = view.current
        explainer = self._context.engine.explainer
        job = None if run.status.terminal else await explainer.next_of_run(view.org, run.uuid)
        task = None if job is None else await explainer.explain(job)
        now = datetime.now(UTC) if job is None else job.read_at
        return self._responses.explanation(
            request, view.org, explain_run(view, run, task, now), unknown=retry_after(view, now)
        )

    async def task(self, request: Request) -> Response:
        view = await self._context.job(request)
        task = await self._context.batches.tasks.get(view, request.params["task_id"])
        job = await self._context.engine.get(to_text(task.uuid), org=view.org)
        explanation = await self._context.engine.explainer.explain(job)
        return self._responses.explanation(
            request,
            view.org,
            with_task_id(explanation, task.id),
            unknown=self._responses.retry_after(job),
        )


def routes(context: BatchesContext, responses: JobResponses) -> list[Route]:
    explain = ExplainRoutes(context, responses)
    return [
        explain_route(JOB, "explain_batch", explain.job, tag="batches", parameters=(JOB_ID,)),
        explain_route(
            TASK_PATH,
            "explain_batch_task",
            explain.task,
            tag="batches",
            parameters=(JOB_ID, TASK_ID),
        ),
    ]
