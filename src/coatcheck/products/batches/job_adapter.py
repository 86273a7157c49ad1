"""Shows tasks, and the internal jobs that ingest and export, among the jobs of all products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.core.upstream_calls import shown_result
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import InputNotKept
from coatcheck.domain.ids import to_text
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.http.job_adapters import JobAdapter, JobLabel, JobPaths
from coatcheck.products.batches.model import BATCHES_SERVICE, EXPORT_ENDPOINT, INGEST_ENDPOINT
from coatcheck.products.batches.presenter import poll_url
from coatcheck.products.batches.repository import BatchRepository

_INTERNAL_JOBS: Final = {INGEST_ENDPOINT: "ingest a list", EXPORT_ENDPOINT: "write an export"}


class BatchesJobAdapter(JobAdapter):
    """Reads and cancels a task like any job. To retry a task, rerun its batch."""

    product = "batches"

    async def label(self, job: OrgJob, /) -> JobLabel:
        task = job.task
        if task is None:
            endpoint = job.view.endpoint
            return JobLabel(BATCHES_SERVICE, _INTERNAL_JOBS.get(endpoint, endpoint))
        return JobLabel(task.service or job.service, task.endpoint or job.view.endpoint)

    def paths(self, job: OrgJob) -> JobPaths:
        task = job.task
        if task is None or task.group is None:
            return JobPaths(None)
        batch = poll_url(to_text(task.group))
        return JobPaths(f"{batch}/tasks/{job.uuid.hex}", batch=batch)

    def result(self, job: OrgJob) -> bytes | None:
        result = job.view.result
        if result is None or job.view.endpoint != UPSTREAM_ENDPOINT:
            return result
        return shown_result(result)

    async def input(self, job: OrgJob) -> bytes:
        payload = await super().input(job)
        if job.task is None:
            return payload
        if job.task.group is None:
            raise InputNotKept("The task's batch and its input are being deleted.")
        batch = await self._engine.extension(BatchRepository).get_of_run(
            job.task.run, org=job.view.org
        )
        return payload.removeprefix(batch.payload_prefix).removesuffix(batch.payload_suffix)

    def refusal(self, job: OrgJob, /) -> str | None:
        if job.task is None:
            return (
                "This is an internal job of a batch. Retry a failed ingest with "
                "POST /v1/dlq/{id}/redrive; instead of a failed export, create another one."
            )
        batch = "{id}" if job.task.group is None else to_text(job.task.group)
        return f"To retry a task, rerun its batch: POST /v1/jobs/{batch}/rerun"

    def stored_keys(self, _: Principal, _key: str, /) -> Sequence[str]:
        return []  # idempotency keys of batches name no single job
