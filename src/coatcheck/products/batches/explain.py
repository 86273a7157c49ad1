"""Why a job or a task waits."""

from __future__ import annotations

from datetime import UTC, datetime

from coatcheck.domain.ids import to_text
from coatcheck.http.explanations import explain_operation
from coatcheck.http.job_responses import JobAnswers
from coatcheck.http.request import Call
from coatcheck.http.response import Reply
from coatcheck.http.routing import Operation
from coatcheck.products.batches.context import Scene
from coatcheck.products.batches.explain_run import explained_run, of_task
from coatcheck.products.batches.read_routes import JOB, JOB_ID
from coatcheck.products.batches.retry_after import retry_after
from coatcheck.products.batches.task_routes import ONE, TASK_ID


class Explaining:
    """The routes that say why."""

    def __init__(self, scene: Scene, answers: JobAnswers) -> None:
        self._scene = scene
        self._answers = answers

    async def job(self, call: Call) -> Reply:
        """Of its current run: what the next of its tasks waits for."""
        view = await self._scene.job(call)
        run = view.current
        explainer = self._scene.engine.explainer
        standing = None if run.status.terminal else await explainer.next_of_run(view.org, run.uuid)
        task = None if standing is None else await explainer.explain(standing)
        now = datetime.now(UTC) if standing is None else standing.read_at
        return self._answers.explanation(
            call, view.org, explained_run(view, run, task, now), unknown=retry_after(view, now)
        )

    async def task(self, call: Call) -> Reply:
        view = await self._scene.job(call)
        task = await self._scene.batches.tasks.get(view, call.params["task_id"])
        standing = await self._scene.engine.get(to_text(task.uuid), org=view.org)
        explanation = await self._scene.engine.explainer.explain(standing)
        return self._answers.explanation(
            call,
            view.org,
            of_task(explanation, task.id),
            unknown=self._answers.paced(standing),
        )


def operations(scene: Scene, answers: JobAnswers) -> list[Operation]:
    explaining = Explaining(scene, answers)
    return [
        explain_operation(
            JOB, "explain_batch", explaining.job, tag="batches", parameters=(JOB_ID,)
        ),
        explain_operation(
            ONE, "explain_batch_task", explaining.task, tag="batches", parameters=(JOB_ID, TASK_ID)
        ),
    ]
