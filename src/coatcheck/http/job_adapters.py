"""Jobs of any product: how they are labelled, located, cancelled and retried.

The console knows no product. Each product registers an adapter, which knows the names of its jobs,
their paths, and how to cancel or retry one. A ``JobResource`` is one; the defaults are right for
most products. ``JobAdapters`` finds the adapter of a job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from coatcheck.core import Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import InputNotKept, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.installed import reserved_services

if TYPE_CHECKING:
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


class JobLocation(NamedTuple):
    """Where a job is found."""

    product: str
    path: str


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

    async def other_path(self, principal: Principal, uuid: UUID, /) -> str | None:
        """The path of something that is watched like a job, and is none of the engine's; None if
        there is no such thing, or the caller may not see it."""
        del principal, uuid
        return None


class AdaptedProduct(Protocol):
    """What a product says about its jobs (``product.py``)."""

    @property
    def name(self) -> str: ...
    @property
    def services(self) -> Sequence[str]: ...
    @property
    def jobs(self) -> Callable[[ServerContext], JobAdapter] | None: ...
    @property
    def adapts_other_jobs(self) -> bool: ...
    @property
    def adapts_grouped_jobs(self) -> bool: ...


def read_job_id(text: str) -> UUID | None:
    """A job's id, in the format of jobs or of tasks; None if it is neither."""
    if _TASK_ID.fullmatch(text):
        return UUID(text)
    try:
        return from_text(text)
    except InvalidId:
        return None


_TASK_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_OFF: Final = "The job's product is off on this server (COATCHECK_PRODUCTS)"


class PlainJobs(JobAdapter):
    """Shows jobs that no enabled product adapts: only the engine's fields.

    Only their product can read their payloads and results, which may contain data that callers must
    not see.
    """

    def __init__(self, server: ServerContext, product: str) -> None:
        super().__init__(server)
        self.product = product

    def result(self, job: OrgJob) -> bytes | None:
        del job
        return None

    async def input(self, job: OrgJob) -> bytes:
        del job
        raise InputNotKept(f"{_OFF}: the input cannot be shown here.")

    def refusal(self, _: OrgJob, /) -> str | None:
        return f"{_OFF}: retry the job on a server where the product is on."


class JobAdapters:
    """The adapters of all products that are on. A server fills it once it knows its products."""

    def __init__(self) -> None:
        self.all: Mapping[str, JobAdapter] = {}
        """By the name of the product, which is also the name of a ``surface``."""

    def use(self, server: ServerContext, products: Iterable[AdaptedProduct]) -> None:
        """Adapt the jobs of these products."""
        on = [*products]
        self._server = server
        self.all = {each.name: each.jobs(server) for each in on if each.jobs is not None}
        adapting = [each for each in on if each.name in self.all]
        self._services = {each.name: each.services for each in adapting}
        self._by_service = {
            service: self.all[each.name] for each in adapting for service in each.services
        }
        self._others = next((each.name for each in adapting if each.adapts_other_jobs), None)
        self._grouped = next((each.name for each in adapting if each.adapts_grouped_jobs), None)
        names = {each.name for each in on}
        self._off = {
            service: product
            for service, product in reserved_services().items()
            if product not in names
        }

    async def locate(self, principal: Principal, job_id: str) -> JobLocation | None:
        """Where the caller finds a job, whichever product it is of; None for an id that does not
        exist, or that the caller may not see."""
        uuid = read_job_id(job_id)
        if uuid is None or not self.all:
            return None
        try:
            job = await self._server.engine.extension(OrgJobRepository).get(principal.org, uuid)
        except JobNotFound:
            for name, adapter in self.all.items():
                path = await adapter.other_path(principal, uuid)
                if path is not None:
                    return JobLocation(name, path)
            return None
        if not principal.may_see(job.view.owner):
            return None
        adapter = self.of(job)
        path = adapter.paths(job).job
        return None if path is None else JobLocation(adapter.product, path)

    def of(self, job: OrgJob) -> JobAdapter:
        """The adapter of a job."""
        if job.task is not None:
            return self._plain(job) if self._grouped is None else self.all[self._grouped]
        adapter = self._by_service.get(job.service)
        if adapter is not None:
            return adapter
        if job.service in self._off or self._others is None:
            return self._plain(job)
        return self.all[self._others]

    def services(self, surface: str) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        """The services whose jobs are shown as jobs of ``surface``; or, for the product that adapts
        all other jobs, None and the services to leave out."""
        if surface != self._others:
            return self._services[surface], None
        own = self._services[surface]
        shown_as_others = [service for service in self._by_service if service not in own]
        return None, [*shown_as_others, *self._off]

    def _plain(self, job: OrgJob) -> JobAdapter:
        return PlainJobs(self._server, self._off.get(job.service, job.service))
