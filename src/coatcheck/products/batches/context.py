"""Shared by every route of batches: its services, and the rules of who may see which job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coatcheck.core import Engine
from coatcheck.core.catalogue import Catalogue
from coatcheck.domain.errors import InvalidParameter, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http import parameters
from coatcheck.http.gate import Gate
from coatcheck.http.large_responses import LargeResponses
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.request import Request
from coatcheck.products.batches.model import BatchView, RunView
from coatcheck.products.batches.repository import BatchRepository
from coatcheck.settings import Settings

ALL_RUNS: Final = "all"
"""The value of ``run`` that stands for the job as a whole."""


@dataclass(frozen=True, slots=True)
class BatchesContext:
    """The services that the routes of batches use."""

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
        """The job in the path. Raises JobNotFound unless the caller owns it or is an admin."""
        principal = request.principal
        view = await self.batches.get(request.params["id"], org=principal.org)
        if not principal.may_see(view.owner, admins_see_all=True):
            raise JobNotFound("there is no such job")
        return view


def run_of(view: BatchView, requested: str | None, place: str = "query") -> RunView:
    """The run with the requested id, or the current run. Raises InvalidParameter."""
    if requested is None:
        return view.current
    try:
        run_id = from_text(requested)
    except InvalidId:
        run_id = None
    for run in view.runs:
        if run.uuid == run_id:
            return run
    raise InvalidParameter("run", "must be the id of a run of this job", place)


def chosen_run(view: BatchView, requested: str | None, place: str = "query") -> RunView | None:
    """The requested run, or the current one; None for ``all``, the job as a whole."""
    return None if requested == ALL_RUNS else run_of(view, requested, place)


def stored_key(principal: Principal, kind: str, key: str) -> str:
    """The stored form of an idempotency key: separate for each caller and each operation."""
    return parameters.stored_key("batches", principal, key, kind=kind)
