"""From a host's name to all of its addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from coatcheck.egress.addresses import Address


class NameNotFound(Exception):
    """The name has no address, or nobody can be asked for it at present."""


Resolver = Callable[[str, int, float | None], Awaitable[list[Address]]]
"""Takes a host name, a port and seconds; raises NameNotFound or TimeoutError."""


async def resolve(host: str, port: int, timeout: float | None) -> list[Address]:
    """Ask the system's resolver: the hosts file, the name servers, in the order to be tried."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise NameNotFound(f"{host} has no address") from error
    addresses = [ipaddress.ip_address(sockaddr[0]) for *_, sockaddr in found]
    if not addresses:
        raise NameNotFound(f"{host} has no address")
    return list(dict.fromkeys(addresses))
