"""The guard: decides where this deployment may connect, once, for the very connection it makes.

A name is resolved once for each new connection; every address that it has must be allowed, and the
connection goes to one of those addresses. So a name that leads elsewhere a moment later leads
nowhere. TLS and the Host header keep the name. What COATCHECK_EGRESS_ALLOW lists may be called
although it is not public, and over plain http.
"""

from __future__ import annotations

from collections.abc import Sequence
from ssl import SSLContext
from typing import Final

import httpx2

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress.addresses import Address, is_public
from coatcheck.egress.resolver import NameNotFound, Resolver, resolve
from coatcheck.egress.transport import guarded_client
from coatcheck.egress.urls import Target, read_target
from coatcheck.settings.egress_allow import AllowRule

_RESOLVE_SECONDS_MAX: Final = 5.0
_PORTS_BELOW_1024: Final = frozenset({80, 443})
_FIRST_UNPRIVILEGED_PORT: Final = 1024

_LOCAL_DOMAINS: Final = frozenset(
    {"alt", "arpa", "internal", "invalid", "local", "localhost", "onion", "test"}
)
"""Top-level domains that never lead to the internet (RFC 6761 and its kin)."""


class Guard:
    """Says which URLs may be called, and makes clients that call no others.

    >>> guard = Guard(settings.egress_allow)
    >>> await guard.check_url("https://example.com/hook")    # raises UrlForbidden if it may not
    >>> async with guard.client() as client: ...
    """

    def __init__(
        self,
        allow: Sequence[AllowRule] = (),
        *,
        plain_http: bool = False,
        resolver: Resolver = resolve,
    ) -> None:
        """``plain_http``: what is public may be called without TLS. For pages, not for secrets."""
        self._allow = tuple(allow)
        self._plain_http = plain_http
        self._resolve = resolver

    async def check_url(self, url: str) -> None:
        """Raise UrlForbidden unless the URL may be called as things are now.

        For the time of registration: the client checks again, whenever it connects.
        """
        target = read_target(url)
        try:
            await self.addresses_of(target)
        except (NameNotFound, TimeoutError):
            raise UrlForbidden("The URL's host has no address.") from None

    async def addresses_of(
        self, target: Target, timeout: float | None = _RESOLVE_SECONDS_MAX
    ) -> list[Address]:
        """The addresses of ``target``, all of which may be connected to.

        Raises UrlForbidden, NameNotFound, or TimeoutError.
        """
        trusted = self._is_listed(target.host, target.port)
        if target.address is not None:
            addresses = [target.address]
        else:
            if not (trusted or self._allow):
                _check_name(target.host)  # spares the resolver
            addresses = await self._resolve(target.host, target.port, timeout)
        if not (trusted or self._all_listed(addresses, target.port)):
            unlisted = [a for a in addresses if not self._lists(a, target.port)]
            _check(target, unlisted, self._plain_http)
        return addresses

    def client(
        self,
        *,
        timeout: httpx2.Timeout | float = 30.0,
        limits: httpx2.Limits | None = None,
        verify: SSLContext | None = None,
    ) -> httpx2.AsyncClient:
        """A client that connects only where it may. Redirects are answers like any other.

        It uses no proxy and keeps no cookies: the requests of all tenants share it. Calling what is
        not allowed raises UrlForbidden.
        """
        return guarded_client(self, timeout=timeout, limits=limits, verify=verify)

    def _is_listed(self, host: str, port: int) -> bool:
        return any(rule.allows_name(host, port) for rule in self._allow)

    def _lists(self, address: Address, port: int) -> bool:
        return any(rule.allows_address(address, port) for rule in self._allow)

    def _all_listed(self, addresses: Sequence[Address], port: int) -> bool:
        return all(self._lists(address, port) for address in addresses)


def _check(target: Target, addresses: Sequence[Address], plain_http: bool) -> None:
    """What holds for every target that COATCHECK_EGRESS_ALLOW does not list."""
    if not all(map(is_public, addresses)):
        # Which one, and what it is, would tell strangers about our network.
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
