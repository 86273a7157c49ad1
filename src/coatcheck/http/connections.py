"""Who is connected to one server: how many in all, how many of an address, and who makes room.

A connection costs memory and a file of the system, whoever opened it. So there are only so many in
all. Of one address there are only so many that have shown no valid credential; with one, the bounds
of its key and its organisation count (``open_responses.py``). When the server is full, connections
that wait for a next request are closed first. If there are none, a new connection is read all the
same, for a moment: health checks and the deployment's operators are answered, others are told to
come again (``WhenFull``).

All connections of a reverse proxy come from one address, so those of the proxies that the settings
list are not counted by address.
"""

from __future__ import annotations

import heapq
import ipaddress
import resource
from collections import Counter
from collections.abc import Collection, Sequence
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, Protocol

from coatcheck.domain import ids
from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.gate import Gate
from coatcheck.http.problem_formats import unrouted_format
from coatcheck.http.problems import problem
from coatcheck.http.request import Request
from coatcheck.http.response import ASGIApp, Receive, Scope, Send
from coatcheck.settings.parsers import Network

CONNECTIONS: Final = 10_000
CONNECTIONS_OF_ONE_ADDRESS: Final = 1_000
LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))
OVER_MAX: Final = 1_000
"""Connections over the bound that are read, or told why not. Yet more are cut off."""
RETRY_AFTER: Final = (b"retry-after", b"2")
ANSWERED_WHEN_FULL: Final = frozenset({"/healthz", "/readyz"})

_CLOSED_SHARE: Final = 20
"""A full server closes up to this part of its idle connections at once: a twentieth of all."""
_LOOK_SECONDS: Final = 0.1
"""A full server in which nobody is idle is not searched again for so long."""
_ADDRESSES_REMEMBERED_MAX: Final = 10_000
_IPV6_SITE_BITS: Final = 64
"""What one subscriber has, and can use all of."""
_FILES_KEPT: Final = 256
"""Of those that a process may open, for what is no caller's connection."""


class ClientAddresses:
    """What to count an address under."""

    def __init__(self, proxies: Sequence[Network]) -> None:
        self._proxies = proxies
        self.counted = lru_cache(_ADDRESSES_REMEMBERED_MAX)(self._counted)
        """The network that an address belongs to; None if it is not to be counted."""

    def _counted(self, host: str) -> str | None:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None  # a socket of this machine
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._proxies):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((int(address), _IPV6_SITE_BITS), strict=False))
        return str(address)


class ClientConnection(Protocol):
    """One connection, as far as it matters here."""

    def idle_until(self) -> float | None:
        """When it would be closed by itself; None while it does something."""

    def hang_up(self) -> None: ...


class Arrival(Enum):
    """What is to become of a new connection."""

    WELCOME = "welcome"
    FULL = "full"
    """The server has as many as it may: read, for a moment."""
    ADDRESS_FULL = "address full"
    CUT_OFF = "cut off"


class Connections:
    """The connections of one server."""

    def __init__(
        self, most: int, of_one_address_most: int, proxies: Sequence[Network] = ()
    ) -> None:
        """``of_one_address_most`` 0: addresses are not counted."""
        self._most = most
        self._of_one_address_most = of_one_address_most
        self._addresses = ClientAddresses(proxies)
        self._strangers: Counter[str] = Counter()
        self._address_of: dict[ClientConnection, str] = {}
        self._closing: set[ClientConnection] = set()
        self._look_again_at = 0.0

    def arrived(
        self, connection: ClientConnection, host: str | None, everyone: Collection[Any], now: float
    ) -> Arrival:
        """Count a new connection. ``everyone``: all that are open, this one among them."""
        address = None
        if self._of_one_address_most and host is not None:
            address = self._addresses.counted(host)
        if address is not None:
            self._strangers[address] += 1
            self._address_of[connection] = address
            over = self._strangers[address] - self._of_one_address_most
            if over > 0:
                return Arrival.CUT_OFF if over > OVER_MAX else Arrival.ADDRESS_FULL
        over = len(everyone) - min(len(self._closing), OVER_MAX) - self._most
        if over > 0 and now >= self._look_again_at:
            over -= self._make_room(everyone, now)
        if over <= 0:
            return Arrival.WELCOME
        return Arrival.CUT_OFF if over > OVER_MAX else Arrival.FULL

    def is_known(self, connection: ClientConnection) -> None:
        """It has shown a valid credential, and is not counted to its address any more."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            self._strangers[address] -= 1
            if not self._strangers[address]:
                del self._strangers[address]

    def left(self, connection: ClientConnection) -> None:
        """It is closed."""
        self.is_known(connection)
        self._closing.discard(connection)

    def _make_room(self, everyone: Collection[ClientConnection], now: float) -> int:
        """Close those that have been idle for longest; how many."""
        idle = (
            (until, id(each), each)
            for each in everyone
            if (until := each.idle_until()) is not None and each not in self._closing
        )
        longest = heapq.nsmallest(max(1, self._most // _CLOSED_SHARE), idle)
        for _, _, connection in longest:
            self._closing.add(connection)
            connection.hang_up()
        if not longest:
            self._look_again_at = now + _LOOK_SECONDS
        return len(longest)


class WhenFull:
    """The application of a server that is full: for health checks and for operators.

    Others are told to come again.
    """

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
            HTTPStatus.SERVICE_UNAVAILABLE,
            "too_many_connections",
            "The server has too many connections; try again.",
            headers=[RETRY_AFTER],
        )
        request_id = (b"x-request-id", request.request_id.encode())
        await reply.send(send, [request_id], head=request.method == "HEAD")

    async def _is_by_operator(self, request: Request) -> bool:
        try:
            principal = await self._gate.caller(request)
        except CoatcheckError:
            return False  # it could not be found out, or is not one
        return principal is not None and self._gate.operates(principal)


def possible(wanted: int) -> int:
    """As many connections as are wanted, or as the system lets this process have files for.

    Raises the process's own limit as far as it may: a server without files cannot even refuse.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OVER_MAX + _FILES_KEPT
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    return max(1, soft - _FILES_KEPT - min(OVER_MAX, soft // 10))
