"""What every gateway route needs: the engine, the catalogue, the gate, and who asks for what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from coatcheck.core import Engine
from coatcheck.core.catalogue import Catalogue, Unknown
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.catalogue import ServiceSpec
from coatcheck.domain.errors import JobNotFound, Unauthenticated
from coatcheck.domain.identity import Principal, Scope
from coatcheck.domain.job import JobView
from coatcheck.egress import Guard
from coatcheck.http.gate import Gate, check_scope
from coatcheck.http.job_responses import JobAnswers, may_see
from coatcheck.http.request import Call
from coatcheck.products.gateway.naming import name_of
from coatcheck.products.gateway.presenter import GatewayVoice
from coatcheck.settings import Settings

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts that the gateway's routes work with."""

    settings: Settings
    engine: Engine
    catalogue: Catalogue
    gate: Gate
    answers: JobAnswers
    guard: Guard
    receivers: Guard
    remote_calls: RemoteCalls

    async def service(self, org: str, name: str) -> ServiceSpec | None:
        if not is_name(name):
            return None
        found = self.catalogue.find_now(org, name)
        return await self.catalogue.find(org, name) if isinstance(found, Unknown) else found

    async def voice(self, org: str, service: str) -> GatewayVoice:
        spec = await self.service(org, service)
        return GatewayVoice(org, service, spec, self.engine.stall_reason)

    async def let_in(self, call: Call, scope: Scope) -> Principal | None:
        """Who calls; None if no credential was given. One that was given must have the scope."""
        principal = await self.gate.caller(call)
        if principal is not None:
            check_scope(principal, scope)
            call.principal = principal
            call.reply_headers = await self.gate.count(principal)
        return principal

    async def job(self, call: Call, scope: Scope) -> JobView:
        """The job that the path names, if the caller may see it.

        A caller without a credential learns of nothing but jobs that are open to anyone.
        """
        org, service = call.params["org"], call.params["service"]
        principal = await self.let_in(call, scope)
        try:
            if not is_name(org):
                raise JobNotFound("there is no such job")
            view = await self.engine.look(call.params["id"], org=org)
            named = name_of(view)
            if named is None or named.service != service or not may_see(principal, view, org):
                raise JobNotFound("there is no such job")
        except JobNotFound:
            if principal is None:
                raise Unauthenticated from None
            raise
        return view


def is_name(text: str) -> bool:
    """Whether an organisation or a service can be called so."""
    return _NAME.fullmatch(text) is not None
