"""Limits on the connections to one server: in total, and by client address.

Every connection costs memory and a file descriptor. So the total is bounded. Connections of one
address that have shown no valid credential are bounded as well; with a credential, the limits of
its key and its organisation apply (``open_responses.py``). A full server closes connections that
wait for a next request first. If there are none, it still reads a new connection for a moment:
health checks and the deployment's operators are answered, others get a 503 (``FullServerApp``).

All connections of a reverse proxy come from one address. So the connections of proxies that the
settings list are not counted by address.
"""

from __future__ import annotations

import heapq
import ipaddress
import resource
from collections import Counter
from collections.abc import Collection, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Protocol

from coatcheck.domain import ids
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.gate import Gate
from coatcheck.http.problem_formats import unrouted_format
from coatcheck.http.problems import Refusal, problem
from coatcheck.http.request import Request
from coatcheck.http.response import ASGIApp, Receive, Scope, Send
from coatcheck.settings.parsers import Network

CONNECTIONS: Final = 10_000
CONNECTIONS_OF_ONE_ADDRESS: Final = 1_000
LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))
OVER_MAX: Final = 1_000
"""Connections over the limit that are read, or refused with an answer. More are aborted."""
RETRY_AFTER: Final = (b"retry-after", b"2")
CONNECTIONS_BOUND: Final = CountedBound(
    "connections",
    of="connections; idle ones are closed first, and health checks and operators are "
    "still answered",
    over="server",
    response="503 `too_many_connections`, `Retry-After`",
    settings=["connections"],
)
ADDRESS_BOUND: Final = CountedBound(
    "connections_of_address",
    of="connections of one address (IPv6: /64) that have shown no valid credential; listed "
    "proxies are exempt",
    over="server",
    response="429 `too_many_connections_of_address`, `Retry-After`, closed",
    settings=["connections_per_address", "proxies"],
)
ANSWERED_WHEN_FULL: Final = frozenset({"/healthz", "/readyz"})

_CLOSED_SHARE: Final = 20
"""A full server closes idle connections at once, up to this part of all: a twentieth."""
_LOOK_SECONDS: Final = 0.1
"""How long a full server without idle connections does not search for some again."""
_ADDRESSES_REMEMBERED_MAX: Final = 10_000
_IPV6_SITE_BITS: Final = 64
"""The prefix of one subscriber, who can use every address in it."""
_FILES_KEPT: Final = 256
"""File descriptors that are reserved for everything but clients' connections."""


class ClientAddresses:
    """Maps client addresses to the networks that they are counted under."""

    def __init__(self, proxies: Sequence[Network]) -> None:
        self._proxies = proxies
        self.counted = lru_cache(_ADDRESSES_REMEMBERED_MAX)(self._counted)
        """The network of an address; None if the address is not counted."""

    def _counted(self, host: str) -> str | None:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None  # a Unix socket
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._proxies):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((int(address), _IPV6_SITE_BITS), strict=False))
        return str(address)


class ClientConnection(Protocol):
    """The methods of a connection that its limits need."""

    def idle_until(self) -> float | None:
        """When its keep-alive timeout closes it; None while a request is in progress."""

    def hang_up(self) -> None: ...


class Arrival(Enum):
    """What to do with a new connection."""

    ACCEPT = "accept"
    FULL = "full"
    """The server is full: read the connection for a moment."""
    ADDRESS_FULL = "address full"
    ABORT = "abort"


class ConnectionLimits:
    """Counts the connections of one server, and decides about new ones."""

    def __init__(self, total_max: int, address_max: int, proxies: Sequence[Network] = ()) -> None:
        """``address_max`` 0: addresses are not counted."""
        self._total_max = total_max
        self._address_max = address_max
        self._addresses = ClientAddresses(proxies)
        self._unauthenticated: Counter[str] = Counter()
        self._address_of: dict[ClientConnection, str] = {}
        self._closing: set[ClientConnection] = set()
        self._look_again_at = 0.0

    def opened(
        self, connection: ClientConnection, host: str | None, everyone: Collection[Any], now: float
    ) -> Arrival:
        """Count a new connection. ``everyone``: all open connections, this one included."""
        address = None
        if self._address_max and host is not None:
            address = self._addresses.counted(host)
        if address is not None:
            self._unauthenticated[address] += 1
            self._address_of[connection] = address
            over = self._unauthenticated[address] - self._address_max
            if over > 0:
                return Arrival.ABORT if over > OVER_MAX else Arrival.ADDRESS_FULL
        over = len(everyone) - min(len(self._closing), OVER_MAX) - self._total_max
        if over > 0 and now >= self._look_again_at:
            over -= self._make_room(everyone, now)
        if over <= 0:
            return Arrival.ACCEPT
        return Arrival.ABORT if over > OVER_MAX else Arrival.FULL

    def authenticated(self, connection: ClientConnection) -> None:
        """The caller has shown a valid credential: its address no longer counts the connection."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            self._unauthenticated[address] -= 1
            if not self._unauthenticated[address]:
                del self._unauthenticated[address]

    def closed(self, connection: ClientConnection) -> None:
        """Stop counting a connection that is closed."""
        self.authenticated(connection)
        self._closing.discard(connection)

    def _make_room(self, everyone: Collection[ClientConnection], now: float) -> int:
        """Close the connections that have been idle for longest. Returns how many."""
        idle = (
            (until, id(each), each)
            for each in everyone
            if (until := each.idle_until()) is not None and each not in self._closing
        )
        longest = heapq.nsmallest(max(1, self._total_max // _CLOSED_SHARE), idle)
        for _, _, connection in longest:
            self._closing.add(connection)
            connection.hang_up()
        if not longest:
            self._look_again_at = now + _LOOK_SECONDS
        return len(longest)


class FullServerApp:
    """The application of a full server: answers health checks and operators, others get a 503."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, ids.to_text(ids.new_id()))
        if request.path in ANSWERED_WHEN_FULL or await self._is_by_operator(request):
            await self._app(scope, receive, send)
            return
        request.problem_format = unrouted_format(self._app, request.raw_path)
        reply = problem(
            request,
            *Refusal.TOO_MANY_CONNECTIONS.value,
            "The server has too many connections; try again.",
            headers=[RETRY_AFTER],
        )
        request_id = (b"x-request-id", request.request_id.encode())
        await reply.send(send, [request_id], head=request.method == "HEAD")

    async def _is_by_operator(self, request: Request) -> bool:
        try:
            principal = await self._gate.caller(request)
        except CoatcheckError:
            return False  # the credential is invalid, or could not be checked
        return principal is not None and self._gate.operates(principal)


def possible_connections(requested: int) -> int:
    """The number of connections requested, or fewer if the system's limit on open files is lower.

    Raises the soft limit of this process as far as it may: a server without free file descriptors
    cannot even refuse a connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = requested + OVER_MAX + _FILES_KEPT
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return requested
    return max(1, soft - _FILES_KEPT - min(OVER_MAX, soft // 10))
