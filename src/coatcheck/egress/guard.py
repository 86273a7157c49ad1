"""The egress guard: decides whether a connection is allowed, at the moment it is made.

Each new connection resolves its name once; all of the name's addresses must be allowed, and the
connection goes to one of exactly those. So a name that resolves differently a moment later (DNS
rebinding) gains nothing. TLS and the Host header keep the name. Hosts in COATCHECK_EGRESS_ALLOW may
be called although they are not public, and over plain http.
"""

from __future__ import annotations

from collections.abc import Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLContext
from typing import Final

import httpx2

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress.resolver import NameNotFound, Resolver, shared_resolver
from coatcheck.egress.transport import GuardedTransport
from coatcheck.egress.urls import Address, Target, is_public, read_target
from coatcheck.settings import Settings
from coatcheck.settings.egress_allow import AllowRule, parse_allow

_LOOPBACK: Final = parse_allow("localhost,127.0.0.0/8,::1")


def receiver_guard(settings: Settings) -> Guard:
    """The guard for webhooks, made from the settings."""
    return guard_of(settings, allow=_LOOPBACK if settings.webhook_loopback else ())


_PORTS_BELOW_1024: Final = frozenset({80, 443})
_FIRST_UNPRIVILEGED_PORT: Final = 1024

_LOCAL_DOMAINS: Final = frozenset(
    {"alt", "arpa", "internal", "invalid", "local", "localhost", "onion", "test"}
)
"""Top-level domains that never resolve on the internet (RFC 6761 and similar)."""


class Guard:
    """Checks which URLs may be called, and makes clients that call no others.

    >>> guard = guard_of(settings)
    >>> await guard.check_url("https://example.com/hook", org)  # raises UrlForbidden if it may not
    >>> async with guard.client() as client:
    ...     await client.get(url, extensions=charged_to(org))

    ``org`` is the organisation that the look-up counts for; "" is the deployment itself.
    """

    def __init__(
        self,
        allow: Sequence[AllowRule] = (),
        *,
        plain_http: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        """``plain_http``: public hosts may be called without TLS. For pages, not for secrets."""
        self._allow = tuple(allow)
        self._plain_http = plain_http
        self._resolve = shared_resolver() if resolver is None else resolver

    async def check_url(self, url: str, org: str = "") -> None:
        """Raise UrlForbidden unless the URL may be called now, or LookUpRefused if its host cannot
        be looked up now.

        For checks at registration. The client checks again on every connection.
        """
        target = read_target(url)
        try:
            await self.addresses_of(target, org)
        except (NameNotFound, TimeoutError):
            raise UrlForbidden("The URL's host has no address.") from None

    async def addresses_of(
        self, target: Target, org: str = "", timeout: float | None = None
    ) -> list[Address]:
        """The addresses of ``target``, if all of them may be connected to.

        Raises UrlForbidden, NameNotFound, LookUpRefused, or TimeoutError.
        """
        trusted = self._is_listed(target.host, target.port)
        if target.address is not None:
            addresses = [target.address]
        else:
            if not (trusted or self._allow):
                _check_name(target.host)  # saves a look-up
            addresses = await self._resolve(target.host, org, timeout)
        unlisted = [each for each in addresses if not self._lists(each, target.port)]
        if unlisted and not trusted:
            _check(target, unlisted, self._plain_http)
        return addresses

    def client(
        self,
        *,
        timeout: httpx2.Timeout | float = 30.0,
        limits: httpx2.Limits | None = None,
        verify: SSLContext | None = None,
    ) -> httpx2.AsyncClient:
        """An HTTP client that connects only where it may. It does not follow redirects.

        It uses no proxy and keeps no cookies, because requests of all tenants share it. Calling a
        forbidden URL raises UrlForbidden. Requests name their organisation: see ``charged_to``.
        """
        return httpx2.AsyncClient(
            transport=GuardedTransport(self, limits=limits or httpx2.Limits(), verify=verify),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        )

    def _is_listed(self, host: str, port: int) -> bool:
        return any(rule.allows_name(host, port) for rule in self._allow)

    def _lists(self, address: Address, port: int) -> bool:
        return any(rule.allows_address(address, port) for rule in self._allow)


def guard_of(
    settings: Settings, *, plain_http: bool = False, allow: Sequence[AllowRule] = ()
) -> Guard:
    """A guard made from the settings. ``allow`` has additional rules."""
    return Guard(
        (*settings.egress_allow, *allow),
        plain_http=plain_http,
        resolver=shared_resolver(settings.dns_servers),
    )


def _check(target: Target, addresses: Sequence[Address], plain_http: bool) -> None:
    """The rules for every target that COATCHECK_EGRESS_ALLOW does not list."""
    if not all(map(is_public, addresses)):
        # Naming the address would tell strangers about our network.
        raise UrlForbidden("The URL leads to an address that is not public.")
    if target.scheme != "https" and not plain_http:
        raise UrlForbidden("The URL must begin with https://.")
    if target.address is None:
        _check_name(target.host)
    if target.port < _FIRST_UNPRIVILEGED_PORT and target.port not in _PORTS_BELOW_1024:
        raise UrlForbidden("The URL's port must be 80, 443, or 1024 and above.")


def _check_name(host: str) -> None:
    _, dot, last = host.rpartition(".")
    if not dot or last in _LOCAL_DOMAINS:
        raise UrlForbidden("The URL's host is a name of a private network.")
