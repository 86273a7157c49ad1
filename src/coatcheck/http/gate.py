"""Admits or refuses requests: checks the credential, the scope, the organisation and the rate.

Its backlog limit refuses new jobs of an organisation that has too many waiting jobs.

Jobs that are submitted together are admitted together or not at all. Where their number is not
known before they are stored, they are stored until the limit is reached.

The database counts the backlog, at most once a second for each organisation. In between, this
replica adds the jobs that it admits. So the limit may be exceeded by what the other replicas admit
in that second. That is exact enough for a backlog, and few submits pay for a count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from coatcheck.core.queries.jobs import BACKLOG
from coatcheck.domain.errors import (
    MissingScope,
    NotFound,
    QueueFull,
    SubscriptionInactive,
    Unauthenticated,
)
from coatcheck.domain.tenants import Principal, Scope, is_org_id
from coatcheck.http.auth import Authenticator
from coatcheck.http.auth.credential_watch import CredentialWatch
from coatcheck.http.billing import Subscriptions
from coatcheck.http.rate_limits import RateLimiter
from coatcheck.http.request import CONNECTION, Request
from coatcheck.http.response import RawHeaders
from coatcheck.http.routing import Access, Route
from coatcheck.telemetry import metrics

COUNT_SECONDS: Final = 1.0
"""How long a count is used."""
_RETRY_AFTER_SECONDS: Final = 5
_ORGS_REMEMBERED_MAX: Final = 10_000

Count = Callable[[str, int], Awaitable[int]]
"""Counts the waiting jobs of an organisation; need not count beyond the given number."""


@dataclass(slots=True)
class _Known:
    jobs: int
    until: float


class Backlog:
    """The backlog limits of all organisations, on this replica."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, _Known] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}

    async def check(self, principal: Principal, jobs: int = 1) -> None:
        """Admit this many jobs, or raise QueueFull. With 0, raise QueueFull unless there is room
        for one."""
        jobs_max = principal.org_backlog_max
        if jobs_max is None:
            return
        org = principal.org
        known = self._known.get(org)
        while known is None or known.until <= time.monotonic():
            await self._recount(org, jobs_max)
            known = self._known.get(org)
        if known.jobs + max(jobs, 1) > jobs_max:
            metrics.record_bound_met(BACKLOG)
            if jobs <= 1:
                raise QueueFull(_RETRY_AFTER_SECONDS)
            raise QueueFull(
                _RETRY_AFTER_SECONDS,
                f"The organisation may have {jobs_max} waiting jobs, so {jobs} more do not fit "
                "now; see Retry-After, or submit fewer tasks at a time.",
            )
        known.jobs += jobs

    async def _recount(self, org: str, jobs_max: int) -> None:
        """Count once for all concurrent submits."""
        counting = self._counting.get(org)
        if counting is None:
            counting = asyncio.create_task(self._remember(org, jobs_max))
            self._counting[org] = counting
            counting.add_done_callback(lambda _: self._counting.pop(org))
        await asyncio.shield(counting)

    async def _remember(self, org: str, jobs_max: int) -> None:
        jobs = await self._count(org, jobs_max)
        if len(self._known) >= _ORGS_REMEMBERED_MAX:
            self._known.clear()
        self._known[org] = _Known(jobs, time.monotonic() + COUNT_SECONDS)


class Gate:
    """Admits requests. Most refusals cost no more than a look into a cache."""

    def __init__(
        self,
        authenticator: Authenticator,
        limiter: RateLimiter,
        subscriptions: Subscriptions,
        backlog: Backlog,
        *,
        timeout_seconds_max: float,
        operator_org: str = "",
    ) -> None:
        """The admins of ``operator_org`` are the deployment's operators; there are none if it is
        empty. ``timeout_seconds_max`` is the bound for organisations that have none set."""
        self._authenticator = authenticator
        self._limiter = limiter
        self._subscriptions = subscriptions
        self._backlog = backlog
        self._timeout_seconds_max = timeout_seconds_max
        self._operator_org = operator_org

    async def admit(self, request: Request, route: Route) -> RawHeaders:
        """Admit a request to a route that requires a scope. Called by the dispatcher."""
        if not isinstance(route.access, Scope):
            assert route.access is Access.HANDLER
            return ()
        principal = await self.caller(request)
        if principal is None:
            raise Unauthenticated
        check_scope(principal, route.access)
        request.principal = self._acting(principal, request, route)
        return await self.count(principal)

    def _acting(self, principal: Principal, request: Request, route: Route) -> Principal:
        """The caller, acting for the organisation that the path names. Raises NotFound if the
        caller may not, and MissingScope on routes that are for operators only."""
        org = request.params.get("org", principal.org)
        if route.operable or route.operators_only:
            if self.operates(principal):
                if not is_org_id(org):
                    raise NotFound
                own = org == principal.org
                return replace(
                    principal,
                    org=org,
                    org_backlog_max=principal.org_backlog_max if own else None,
                    org_timeout_max=principal.org_timeout_max if own else None,
                    is_operator=True,
                )
            if route.operators_only:
                raise MissingScope(
                    "Only the deployment's operators may call this: the admins of the organisation "
                    "that COATCHECK_OPERATOR_ORG names."
                )
        if principal.org != org:
            raise NotFound
        return principal

    def operates(self, principal: Principal) -> bool:
        """Whether the caller is an operator of the deployment."""
        return principal.org == self._operator_org and Scope.ADMIN in principal.scopes

    async def caller(self, request: Request) -> Principal | None:
        """The caller; None if there is no credential. Raises Unauthenticated for an invalid one,
        and TooManyHeldAnswers if the response would stay open and the caller has too many open
        responses."""
        credential = _credential(request)
        principal = None
        if credential is not None:
            principal = self._authenticator.known(credential)
            if principal is None:
                principal = await self._authenticator.check(credential)
            request.credential = credential
            connection = request.scope.get(CONNECTION)
            if connection is not None:
                connection.authenticated()
        if request.response_slot is not None:
            operates = principal is not None and self.operates(principal)
            org = request.params.get("org", "")
            request.response_slot.assign(principal, org, operates=operates)
        return principal

    def watch(
        self, request: Request, wake: Callable[[], None]
    ) -> AbstractContextManager[CredentialWatch]:
        """Call ``wake`` once the credential of the request is no longer valid: for responses that
        stay open."""
        return self._authenticator.watch(request.credential, wake)

    async def anonymous(self, org: str) -> Principal:
        """The principal of a caller without a credential, for what is open to anyone."""
        return await self._authenticator.anonymous(org)

    async def count(self, principal: Principal) -> RawHeaders:
        """Count a request against the caller's rate limits. Raises RateLimited."""
        headers = self._limiter.admit_now(principal)
        return headers if headers is not None else await self._limiter.admit(principal)

    def timeout_seconds_max(self, principal: Principal) -> float:
        """The longest timeout of a call to a service that the caller's organisation registered."""
        own = principal.org_timeout_max
        return self._timeout_seconds_max if own is None else own

    async def check_plan(self, principal: Principal) -> None:
        """Raises SubscriptionInactive."""
        if not self._subscriptions.check_now(principal.org):
            await self._subscriptions.check(principal.org)

    async def check_new_work(self, principal: Principal, jobs: int = 1) -> None:
        """Raises SubscriptionInactive or QueueFull. ``jobs`` is 0 if the jobs are counted by
        ``check_room`` after the body was read."""
        await self.check_plan(principal)
        await self.check_room(principal, jobs)

    async def check_room(self, principal: Principal, jobs: int) -> None:
        """Count new jobs against the organisation's backlog limit. Raises QueueFull."""
        if principal.org_backlog_max is not None:
            await self._backlog.check(principal, jobs)

    async def check_unless_known(
        self, principal: Principal, key: str | None, knows: Callable[[str], Awaitable[bool]]
    ) -> None:
        """Raises SubscriptionInactive or QueueFull, but not for a known idempotency key, which
        creates no job."""
        try:
            await self.check_new_work(principal)
        except (SubscriptionInactive, QueueFull):
            if key is None or not await knows(key):
                raise


def check_scope(principal: Principal, scope: Scope) -> None:
    if scope not in principal.scopes:
        raise MissingScope(f"The credential does not have the scope {scope.value!r}.")


def _credential(request: Request) -> bytes | None:
    authorization = request.headers.get(b"authorization")
    if authorization is None:
        return request.headers.get(b"x-api-key")
    kind, _, credential = authorization.partition(b" ")
    if kind.lower() != b"bearer":
        raise Unauthenticated
    return credential.strip()
