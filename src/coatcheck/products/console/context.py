"""The services that every console route uses, and the access checks that they share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.core import Engine
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.http import parameters
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.products.console.adapters import JobAdapters
from coatcheck.products.console.presenter import ConsolePresenter

JOBS: Final = "/api/v1/orgs/{org}/jobs"
JOB: Final = f"{JOBS}/{{id}}"
TAG: Final = "console"

_MARK: Final = "\x1eretry:"
"""The prefix of the idempotency keys of retries. No caller can send it: it is not printable."""
_TASK_ID: Final = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The server's services that the console routes use."""

    engine: Engine
    gate: Gate
    responses: JobResponses
    adapters: JobAdapters
    presenter: ConsolePresenter

    async def job(self, request: Request) -> OrgJob:
        """The job that the path names, if the caller may see it."""
        return await self.find(request.principal, request.params["id"])

    async def find(self, principal: Principal, job_id: str) -> OrgJob:
        """A job by its id, in the format of jobs or of tasks. Raises JobNotFound, also for a job
        that the caller may not see."""
        job = await self.engine.extension(OrgJobRepository).get(principal.org, read_id(job_id))
        if not principal.may_see(job.view.owner, admins_see_all=True):
            raise JobNotFound("there is no such job")
        return job


def read_id(text: str) -> UUID:
    """Parse a job's id, in the format of jobs or of tasks. Raises JobNotFound."""
    if _TASK_ID.fullmatch(text):
        return UUID(text)
    try:
        return from_text(text)
    except InvalidId as error:
        raise JobNotFound("there is no such job") from error


def key_of_filtered(job: OrgJob) -> str:
    """The key for retrying a job that a filter found: the same for every caller."""
    return f"{_MARK}found:{job.uuid.hex}"


def stored_key(principal: Principal, key: str) -> str:
    """The idempotency key of a retry as it is stored: every caller has their own keys."""
    return parameters.stored_key("retry", principal, key)
