"""What every route of the console needs, and who may see which job."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.core import Engine
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.products.console.adapters import JobAdapters
from coatcheck.products.console.presenter import ConsolePresenter

JOBS: Final = "/api/v1/orgs/{org}/jobs"
JOB: Final = f"{JOBS}/{{id}}"
TAG: Final = "console"

_MARK: Final = "\x1eretry:"
"""Before the keys of retries. No caller can spell it: it is not printable."""
_TASK_ID: Final = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The parts that the routes of the console work with."""

    engine: Engine
    gate: Gate
    responses: JobResponses
    adapters: JobAdapters
    presenter: ConsolePresenter

    async def job(self, request: Request) -> OrgJob:
        """The job that the path names, if the caller may see it."""
        return await self.find(request.principal, request.params["id"])

    async def find(self, principal: Principal, job_id: str) -> OrgJob:
        """A job by its id, spelt as jobs or as tasks are. Raises JobNotFound, whatever is wrong."""
        job = await self.engine.extension(OrgJobRepository).get(principal.org, read_id(job_id))
        if not may_see(principal, job.view.owner):
            raise JobNotFound("there is no such job")
        return job


def may_see(principal: Principal, owner: str) -> bool:
    """Whether a job is the caller's to look after: an admin looks after all."""
    return Scope.ADMIN in principal.scopes or principal.may_see(owner)


def reader_of_lists(principal: Principal) -> str | None:
    """Whose jobs a caller lists: an admin those of all, others their own and what is anyone's."""
    return None if Scope.ADMIN in principal.scopes else principal.owner


def read_id(text: str) -> UUID:
    """The id of a job, spelt as jobs or as tasks are. Raises JobNotFound."""
    if _TASK_ID.fullmatch(text):
        return UUID(text)
    try:
        return from_text(text)
    except InvalidId as error:
        raise JobNotFound("there is no such job") from error


def key_of_filtered(job: OrgJob) -> str:
    """The key of the retry of a job that a filter found: one, whoever asks for it."""
    return f"{_MARK}found:{job.uuid.hex}"


def stored_key(principal: Principal, key: str) -> str:
    """The idempotency key of a retry as it is stored: one for each caller who says it."""
    said = "\0".join([principal.owner, key])
    return _MARK + hashlib.sha256(said.encode()).hexdigest()
