"""The interface by which the console shows, cancels and retries the jobs of any product.

The console knows no product. Each product registers an adapter, which knows the names of its jobs,
their paths, and how to cancel or retry one. A ``JobResource`` is one; the defaults are right for
most products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coatcheck.core import Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.http.context import ServerContext


class JobLabel(NamedTuple):
    """The public names of a job's service and endpoint."""

    service: str
    endpoint: str


class JobPaths(NamedTuple):
    """The paths of a job in its product's API."""

    job: str | None
    receipt: str | None = None
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """Who retries a job, and the idempotency key of the new job in its stored form."""

    principal: Principal
    idempotency_key: str | None
    request_id: str | None


class JobAdapter:
    """Adapts the jobs of one product."""

    product: str
    """The name of the product. The console shows it as its field ``surface``."""

    def __init__(self, server: ServerContext) -> None:
        self.engine = server.engine
        self.remote_calls = server.remote_calls

    async def label(self, job: OrgJob, /) -> JobLabel:
        """The public names of the job's service and endpoint."""
        return JobLabel(job.service, job.view.endpoint)

    def paths(self, job: OrgJob) -> JobPaths:
        """The job's paths."""
        del job
        return JobPaths(None)

    def result(self, job: OrgJob) -> bytes | None:
        """The result as the product's API shows it, as JSON; None if there is none, or it is not in
        the job's row."""
        return job.view.result

    def shows_artifacts(self, _: OrgJob, /) -> bool:
        """Whether its files are shown in its present state."""
        return True

    async def input(self, job: OrgJob) -> bytes:
        """The input that its caller submitted, as JSON, without what the product added to the
        payload. Raises InputNotKept."""
        return await self.engine.extension(OrgJobRepository).input_of(job.view.org, job.uuid)

    def refusal(self, _: OrgJob, /) -> str | None:
        """Why jobs of this kind cannot be retried, and what to do instead; None if they can."""
        return None

    async def cancel(self, view: JobView) -> JobView:
        """Cancel the job, here and at the remote that runs it. Raises JobAlreadyEnded."""
        after = await self.engine.cancel(view.id, org=view.org)
        if after.execution_id is None:
            return after
        await self.remote_calls.cancel(after.org, after.uuid)
        return await self.engine.get(view.id, org=view.org)

    async def retry(self, job: OrgJob, order: RetryRequest) -> Ticket:
        """Submit a new job with the same input. Raises JobNotEnded, InputNotKept or
        NotRetryable."""
        return await self.engine.extension(OrgJobRepository).retry(
            job, idempotency_key=order.idempotency_key, request_id=order.request_id
        )

    def stored_keys(self, _: Principal, _key: str, /) -> Sequence[str]:
        """The stored forms of an idempotency key that this caller may have sent."""
        return []
