"""What every route of batches needs, and who may see which job."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from coatcheck.core import Engine
from coatcheck.core.catalogue import Catalogue
from coatcheck.domain.errors import InvalidParameter, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.egress import Guard
from coatcheck.http.gate import Gate
from coatcheck.http.large_responses import LargeResponses
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.request import Request
from coatcheck.products.batches.model import BatchView, RunView
from coatcheck.products.batches.repository import BatchRepository
from coatcheck.settings import Settings

ALL_RUNS: Final = "all"
"""What a caller says for a run to be told of the job as a whole."""
PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200

_MARK: Final = "\x1ebatches:"
"""Before the keys of this surface. No caller can spell it: it is not printable."""


@dataclass(frozen=True, slots=True)
class BatchesContext:
    """The parts that the routes of this surface work with."""

    settings: Settings
    engine: Engine
    catalogue: Catalogue
    gate: Gate
    guard: Guard
    draining: ServerDraining
    large: LargeResponses

    @property
    def batches(self) -> BatchRepository:
        return self.engine.extension(BatchRepository)

    async def job(self, request: Request) -> BatchView:
        """The job that the path names, if it is the caller's, or the caller an admin."""
        principal = request.principal
        view = await self.batches.get(request.params["id"], org=principal.org)
        if not may_see(principal, view.owner):
            raise JobNotFound("there is no such job")
        return view


def run_of(view: BatchView, wanted: str | None, place: str = "query") -> RunView:
    """The run of a job that a caller names, or the current one. Raises InvalidParameter."""
    if wanted is None:
        return view.current
    try:
        run_id = from_text(wanted)
    except InvalidId:
        run_id = None
    for run in view.runs:
        if run.uuid == run_id:
            return run
    raise InvalidParameter("run", "must be the id of a run of this job", place)


def chosen_run(view: BatchView, wanted: str | None, place: str = "query") -> RunView | None:
    """The run that a caller names, or the current one; None for all of them: the job as a whole."""
    return None if wanted == ALL_RUNS else run_of(view, wanted, place)


def may_see(principal: Principal, owner: str) -> bool:
    """Whether a caller may see and steer a job of that owner: an admin those of all."""
    return Scope.ADMIN in principal.scopes or principal.may_see(owner)


def owner_of_list(principal: Principal) -> str | None:
    """Whose jobs a caller lists: an admin those of all, others their own."""
    return None if Scope.ADMIN in principal.scopes else principal.owner


def stored_key(principal: Principal, kind: str, key: str) -> str:
    """An idempotency key as it is stored: one for each caller who says it, and what for."""
    said = "\0".join([kind, principal.owner, key])
    return _MARK + hashlib.sha256(said.encode()).hexdigest()
