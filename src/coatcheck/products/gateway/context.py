"""The services that every gateway route uses, and the lookups and access checks they share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from coatcheck.core import Engine
from coatcheck.core.catalogue import Catalogue, UnknownService
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.catalogue import ServiceSpec
from coatcheck.domain.errors import JobNotFound, Unauthenticated
from coatcheck.domain.job import JobView
from coatcheck.domain.tenants import ANYONE, Principal, Scope
from coatcheck.egress import Guard
from coatcheck.http.gate import Gate, check_scope
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.products.gateway.naming import endpoint_ref
from coatcheck.products.gateway.presenter import GatewayPresenter
from coatcheck.settings import Settings

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """The server's services that the gateway's routes use."""

    settings: Settings
    engine: Engine
    catalogue: Catalogue
    gate: Gate
    responses: JobResponses
    guard: Guard
    receivers: Guard
    remote_calls: RemoteCalls

    async def service(self, org: str, name: str) -> ServiceSpec | None:
        if not is_name(name):
            return None
        found = self.catalogue.find_now(org, name)
        return await self.catalogue.find(org, name) if isinstance(found, UnknownService) else found

    async def presenter(self, org: str, service: str) -> GatewayPresenter:
        spec = await self.service(org, service)
        return GatewayPresenter(org, service, spec, self.engine.stall_reason)

    async def authenticate(self, request: Request, scope: Scope) -> Principal | None:
        """The caller; None without a credential. A credential must have the scope."""
        principal = await self.gate.caller(request)
        if principal is not None:
            check_scope(principal, scope)
            request.principal = principal
            request.response_headers = await self.gate.count(principal)
        return principal

    async def job(self, request: Request, scope: Scope) -> JobView:
        """The job that the path names, if the caller may see it.

        Without a credential only jobs that are open to anyone are visible; any other id answers
        401, so that it says nothing about which jobs exist.
        """
        org, service = request.params["org"], request.params["service"]
        principal = await self.authenticate(request, scope)
        try:
            if not is_name(org):
                raise JobNotFound("there is no such job")
            view = await self.engine.look(request.params["id"], org=org)
            ref = endpoint_ref(view)
            if ref is None or ref.service != service or not may_see(principal, view.owner, org):
                raise JobNotFound("there is no such job")
        except JobNotFound:
            if principal is None:
                raise Unauthenticated from None
            raise
        return view


def may_see(principal: Principal | None, owner: str, org: str) -> bool:
    """Whether a caller, perhaps of another organisation or of none, may see a job of this owner in
    ``org``."""
    if principal is None or principal.org != org:
        return owner == ANYONE
    return principal.may_see(owner)


def is_name(text: str) -> bool:
    """Whether ``text`` can be the name of an organisation or a service."""
    return _NAME.fullmatch(text) is not None
