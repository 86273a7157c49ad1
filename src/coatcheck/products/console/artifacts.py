"""A job's files, for who looks after the job; to delete them is for its own surface."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.identity import Scope
from coatcheck.http.artifacts import Holder, artifact_operations
from coatcheck.http.context import Parts
from coatcheck.http.request import Call
from coatcheck.http.routing import Operation
from coatcheck.products.console.context import JOB, TAG, Scene, may_see, read_id
from coatcheck.products.console.presenter import job_url
from coatcheck.products.console.read_routes import JOB_ID

_NAME: Final = "org_job"
_SERVED: Final = (f"{_NAME}_artifacts", f"{_NAME}_artifact", f"{_NAME}_artifact_receipt")


class JobFiles:
    """The job that a path names."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def job(self, call: Call, _: Scope) -> Holder:
        job = await self._scene.job(call)
        view = job.view
        return Holder(
            org=view.org,
            job=job.uuid,
            url=job_url(view.org, job.id),
            terminal=view.terminal,
            # Those of a task go with its batch.
            expires_at=view.expires_at if job.task is None else None,
            shows=self._scene.desks.of(job).shows_artifacts(job),
        )

    async def record(self, call: Call, name: str) -> ArtifactRecord | None:
        """It says itself whose it was: the job may be gone."""
        principal, job = call.principal, read_id(call.params["id"])
        record = await self._scene.engine.artifact_desk.record(principal.org, job, name)
        return record if record is not None and may_see(principal, record.owner) else None


def operations(parts: Parts, scene: Scene) -> list[Operation]:
    every = artifact_operations(
        parts, JobFiles(scene), path=JOB, name=_NAME, tag=TAG, parameters=(JOB_ID,)
    )
    return [replace(each, operable=True) for each in every if each.name in _SERVED]
