"""Why a job or a task waits."""

from __future__ import annotations

from datetime import UTC, datetime

from coatcheck.domain.ids import to_text
from coatcheck.http.explanations import explain_route
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.http.response import Response
from coatcheck.http.routing import Route
from coatcheck.products.batches.context import BatchesContext
from coatcheck.products.batches.explain_run import explained_run, of_task
from coatcheck.products.batches.read_routes import JOB, JOB_ID
from coatcheck.products.batches.responses import retry_after
from coatcheck.products.batches.task_routes import ONE, TASK_ID


class ExplainRoutes:
    """The routes that say why."""

    def __init__(self, context: BatchesContext, responses: JobResponses) -> None:
        self._context = context
        self._responses = responses

    async def job(self, request: Request) -> Response:
        """Of its current run: what the next of its tasks waits for."""
        view = await self._context.job(request)
        run = view.current
        explainer = self._context.engine.explainer
        standing = None if run.status.terminal else await explainer.next_of_run(view.org, run.uuid)
        task = None if standing is None else await explainer.explain(standing)
        now = datetime.now(UTC) if standing is None else standing.read_at
        return self._responses.explanation(
            request, view.org, explained_run(view, run, task, now), unknown=retry_after(view, now)
        )

    async def task(self, request: Request) -> Response:
        view = await self._context.job(request)
        task = await self._context.batches.tasks.get(view, request.params["task_id"])
        standing = await self._context.engine.get(to_text(task.uuid), org=view.org)
        explanation = await self._context.engine.explainer.explain(standing)
        return self._responses.explanation(
            request,
            view.org,
            of_task(explanation, task.id),
            unknown=self._responses.paced(standing),
        )


def routes(context: BatchesContext, responses: JobResponses) -> list[Route]:
    explaining = ExplainRoutes(context, responses)
    return [
        explain_route(JOB, "explain_batch", explaining.job, tag="batches", parameters=(JOB_ID,)),
        explain_route(
            ONE, "explain_batch_task", explaining.task, tag="batches", parameters=(JOB_ID, TASK_ID)
        ),
    ]
