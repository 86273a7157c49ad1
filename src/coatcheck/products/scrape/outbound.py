"""Sends requests for pages: directly, behind the egress guard; through a proxy; or by a template.

The tenant chooses the page's URL, the operator the gateway. For a direct request, the guard checks
the connection itself. A gateway makes its own connections, so only the URL can be checked here: its
syntax, and the addresses that its host name has in this network.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from ssl import SSLContext
from typing import Final

import httpcore2
import httpx2

from coatcheck.domain.errors import LookUpRefused, UrlForbidden
from coatcheck.egress import Guard, charged_to
from coatcheck.egress.connector import GuardedConnection
from coatcheck.egress.resolver import NameNotFound
from coatcheck.egress.transport import GuardedTransport
from coatcheck.egress.urls import read_target
from coatcheck.products.scrape import outcomes
from coatcheck.products.scrape.fetch import URL_CHARACTERS_MAX
from coatcheck.settings.targets import ScrapeGateway
from coatcheck.tls import trusted_authorities

_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 30.0
_RESOLVE_SECONDS_MAX: Final = 2.0
_PROXY_AUTHENTICATION_REQUIRED: Final = str(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED.value)


class Gateway:
    """Sends requests for pages. All jobs of a worker share its connections.

    It does not use a client of httpx2, which would keep cookies and follow redirects; the executor
    checks every redirect.
    """

    def __init__(
        self, gateway: ScrapeGateway, guard: Guard, *, connections_max: int, tls: SSLContext | None
    ) -> None:
        self._gateway = gateway
        self._guard = guard
        self._limits = httpx2.Limits(
            max_connections=connections_max,
            max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
            keepalive_expiry=_KEPT_SECONDS,
        )
        self._tls = tls
        self._transport: httpx2.AsyncBaseTransport | None = None

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def send(
        self,
        org: str,
        method: str,
        page: str,
        headers: Iterable[tuple[str, str]],
        connect_seconds: float,
    ) -> httpx2.Response:
        """Send a request. Returns the response with its headers read; raises the job's outcome if
        there is no response."""
        if self._transport is None:
            self._transport = self._open()
        try:
            await self._check(page, org)
            request = httpx2.Request(
                method,
                self._gateway.address_of(page),
                headers=[(name.encode(), value.encode("latin-1")) for name, value in headers],
                # The whole fetch has its own time limit. Only connecting has a shorter one, because
                # there may be other addresses to try.
                extensions={"timeout": {"connect": connect_seconds}, **charged_to(org)},
            )
            response = await self._transport.handle_async_request(request)
        except httpx2.ProxyError as error:
            if str(error).startswith(_PROXY_AUTHENTICATION_REQUIRED):
                raise outcomes.gateway_unreachable("refuses its credentials") from error
            raise outcomes.gateway_refused() from error
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            LookUpRefused,
            UrlForbidden,
            ValueError,
        ) as error:
            if self._is_gateway_failure(error):
                raise outcomes.gateway_unreachable("cannot be connected to") from error
            raise outcomes.no_response(error) from error
        if (
            self._gateway.kind == "proxy"
            and f"{response.status_code}" == _PROXY_AUTHENTICATION_REQUIRED
        ):
            await response.aclose()
            raise outcomes.gateway_unreachable("refuses its credentials")
        return response

    async def _check(self, page: str, org: str) -> None:
        """Raise UrlForbidden for a page that must not be fetched, as far as this can be checked
        before connecting."""
        target = read_target(page, URL_CHARACTERS_MAX)
        if self._gateway.kind == "direct":
            return  # the guard's transport checks the rest when it connects
        try:
            await self._guard.addresses_of(target, org, _RESOLVE_SECONDS_MAX)
        except (NameNotFound, TimeoutError):
            # Behind a proxy, a worker often cannot resolve names of the internet.
            return

    def _is_gateway_failure(self, error: Exception) -> bool:
        """Whether the connection to the gateway failed, and not the one to the page."""
        if self._gateway.kind == "template":
            return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        return isinstance(error.__cause__, _GatewayUnreachable)

    def _open(self) -> httpx2.AsyncBaseTransport:
        if self._gateway.kind == "direct":
            return GuardedTransport(self._guard, limits=self._limits, verify=self._tls)
        return _GatewayTransport(self._gateway, self._limits, self._tls)


class _GatewayTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport with a pool that distinguishes the gateway's failures from the pages'.

    httpx2 has no argument for that. So this creates the pool instead of the base class's
    ``__init__``, which is not called.
    """

    def __init__(
        self, gateway: ScrapeGateway, limits: httpx2.Limits, tls: SSLContext | None
    ) -> None:
        context = trusted_authorities() if tls is None else tls
        if gateway.kind == "template":
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=context,
                max_connections=limits.max_connections,
                max_keepalive_connections=limits.max_keepalive_connections,
                keepalive_expiry=limits.keepalive_expiry,
                network_backend=_GatewaySockets(),
            )
            return
        proxy = httpx2.Proxy(gateway.url)
        self._pool = httpcore2.AsyncHTTPProxy(
            proxy_url=str(proxy.url),
            proxy_auth=proxy.raw_auth,
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_GatewaySockets(),
        )


class _GatewayUnreachable(httpcore2.ConnectError):
    """The connection to the gateway failed."""


class _GatewaySockets(httpcore2.AsyncNetworkBackend):
    """Opens sockets to the gateway, and raises _GatewayUnreachable if that fails."""

    def __init__(self) -> None:
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return GuardedConnection(
                await self._sockets.connect_tcp(host, port, timeout, local_address, socket_options)
            )
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise _GatewayUnreachable(str(error)) from error
