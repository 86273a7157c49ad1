"""A task's files."""

from __future__ import annotations

from uuid import UUID

from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.identity import Scope
from coatcheck.http.artifacts import Holder, artifact_operations
from coatcheck.http.context import Parts
from coatcheck.http.request import Call
from coatcheck.http.routing import Operation
from coatcheck.products.batches.context import Scene, may_see
from coatcheck.products.batches.presenter import poll_url
from coatcheck.products.batches.read_routes import JOB_ID
from coatcheck.products.batches.task_routes import ONE, TASK_ID


class TaskFinder:
    """The task that a path names. Its files go with the batch."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def job(self, call: Call, _: Scope) -> Holder:
        view = await self._scene.job(call)
        task = await self._scene.batches.tasks.get(view, call.params["task_id"])
        return Holder(
            org=view.org,
            job=task.uuid,
            url=f"{poll_url(view.id)}/tasks/{task.id}",
            terminal=task.state.terminal,
            expires_at=view.expires_at,
            url_seconds=self._scene.settings.batch_url_seconds,
        )

    async def record(self, call: Call, name: str) -> ArtifactRecord | None:
        """Of a batch that was removed only its tasks' records are left: those say whose they are,
        and not which batch they were of."""
        principal = call.principal
        try:
            job = (await self.job(call, Scope.READ)).job
        except JobNotFound:
            try:
                job = UUID(call.params["task_id"])
            except ValueError:
                return None
        record = await self._scene.engine.artifact_desk.record(principal.org, job, name)
        return record if record is not None and may_see(principal, record.owner) else None


def operations(parts: Parts, scene: Scene) -> list[Operation]:
    return artifact_operations(
        parts,
        TaskFinder(scene),
        path=ONE,
        name="batch_task",
        tag="batches",
        parameters=(JOB_ID, TASK_ID),
        shown_id=lambda task: task.hex,
    )
