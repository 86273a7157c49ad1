"""What a surface says of its jobs to whoever looks after all of them.

The console shows, cancels and retries jobs of every surface, and knows none of them from inside:
for each there is a desk, which knows what its jobs are called, where they are found, and how one of
them is stopped or done again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coatcheck.core import Engine, Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal


class JobLabel(NamedTuple):
    """What people call the endpoint of a job, and its service."""

    service: str
    endpoint: str


class JobPaths(NamedTuple):
    """Where a job is found on its own surface, as paths of this server."""

    job: str | None
    receipt: str | None = None
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """Who wants a job to be done again, and under which key, as it is stored."""

    principal: Principal
    idempotency_key: str | None
    request_id: str | None


class JobAdapter(ABC):
    """Speaks for the jobs of one surface. What is said here goes for most of them."""

    surface: str
    """What the console calls it: the name of its product."""

    def __init__(self, engine: Engine, remote_calls: RemoteCalls) -> None:
        self._engine = engine
        self._remote_calls = remote_calls

    @abstractmethod
    async def label(self, job: OrgJob, /) -> JobLabel:
        """What people call it."""

    @abstractmethod
    def places(self, job: OrgJob) -> JobPaths:
        """Where it is found."""

    def result(self, job: OrgJob) -> bytes | None:
        """The result as its surface shows it, as JSON; None if there is none, or not in the row."""
        return job.view.result

    def shows_artifacts(self, _: OrgJob, /) -> bool:
        """Whether its files are shown as it is now."""
        return True

    async def input(self, job: OrgJob) -> bytes:
        """What its caller handed in, as JSON, and nothing that others put into its payload. Raises
        InputNotKept."""
        return await self._engine.extension(OrgJobRepository).input_of(job.view.org, job.uuid)

    def refusal(self, _: OrgJob, /) -> str | None:
        """Why jobs of its kind are not retried, and what to do instead; None if they are."""
        return None

    async def cancel(self, job: OrgJob) -> None:
        """Ask for its end, here and where it is done. Raises JobAlreadyEnded."""
        after = await self._engine.cancel(job.id, org=job.view.org)
        if after.execution_id is not None:
            await self._remote_calls.cancel(after.org, after.uuid)

    async def retry(self, job: OrgJob, order: RetryRequest) -> Ticket:
        """Have it done again, as a new job. Raises JobNotEnded, InputNotKept or NotRetryable."""
        return await self._engine.extension(OrgJobRepository).retry(
            job, idempotency_key=order.idempotency_key, request_id=order.request_id
        )

    def stored_keys(self, _: Principal, key: str, /) -> Sequence[str]:
        """How the surface may have stored an idempotency key that this caller said."""
        return [key]
