"""What every graphs route needs, and who may see which job."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from coatcheck.blobs import BlobContainer
from coatcheck.core import Engine
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.job import JobView
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses, may_see
from coatcheck.http.request import Request
from coatcheck.products.graphs.presenter import GraphsPresenter
from coatcheck.settings import Settings
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS

_MARK = "\x1egraphs:"
"""Before the keys of this surface. No caller can spell it: it is not printable."""


@dataclass(frozen=True, slots=True)
class GraphsContext:
    """The parts that the routes of this surface work with."""

    settings: Settings
    engine: Engine
    gate: Gate
    responses: JobResponses
    presenter: GraphsPresenter
    guard: Guard

    @property
    def blobs(self) -> BlobContainer:
        return self.engine.blobs

    async def job(self, request: Request) -> JobView:
        """The job that the path names, if it is the caller's and their plan is active."""
        principal = request.principal
        await self.gate.check_plan(principal)
        view = await self.engine.get(request.params["id"], org=principal.org)
        if view.endpoint not in GRAPH_ENDPOINTS or not may_see(principal, view, principal.org):
            raise JobNotFound("there is no such job")
        return view


def stored_key(principal: Principal, key: str) -> str:
    """An idempotency key as it is stored: one for each user and API key that says it."""
    said = "\0".join([principal.owner, principal.key_id or "", key])
    return _MARK + hashlib.sha256(said.encode()).hexdigest()
