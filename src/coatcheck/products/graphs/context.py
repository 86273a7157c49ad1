"""The services that every graphs route uses, and the access check that they share."""

from __future__ import annotations

from dataclasses import dataclass

from coatcheck.blobs import BlobContainer
from coatcheck.core import Engine
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.job import JobView
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http import parameters
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.products.graphs.presenter import GraphsPresenter
from coatcheck.settings import Settings
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS


@dataclass(frozen=True, slots=True)
class GraphsContext:
    """The server's services that the graphs routes use."""

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
        """The job that the path names, if the caller may see it and their plan is active."""
        principal = request.principal
        await self.gate.check_plan(principal)
        view = await self.engine.get(request.params["id"], org=principal.org)
        if view.endpoint not in GRAPH_ENDPOINTS or not principal.may_see(view.owner):
            raise JobNotFound("there is no such job")
        return view


def stored_key(principal: Principal, key: str) -> str:
    """An idempotency key as it is stored: every user and every API key has its own keys."""
    return parameters.stored_key("graphs", principal, key, per_api_key=True)
