"""Finds the product's adapter that shows a job, and the services of a product's jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from coatcheck.domain.errors import InputNotKept
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.installed import reserved_services
from coatcheck.product import Product

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
    """The adapters of all products that are on."""

    def __init__(self, server: ServerContext, products: Iterable[Product]) -> None:
        on = [*products]
        self._server = server
        self.all = {each.name: each.jobs(server) for each in on if each.jobs is not None}
        """By the name of the product, which is also the name of a ``surface``."""
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
