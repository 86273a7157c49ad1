"""Asks name servers for the addresses of a host, without a blocked thread.

The system's ``getaddrinfo`` blocks a thread for as long as a name server is silent, and a blocked
thread cannot be reclaimed: a few slow names would stop everybody's calls. c-ares sends the same
queries over sockets that the event loop watches. It reads the same files: ``/etc/hosts``,
``/etc/resolv.conf`` with its search list and ``ndots``, ``/etc/nsswitch.conf``.

Each look-up has its own channel (about 30 microseconds to create). So it can be cancelled, its
timeouts do not depend on other tenants' names, changes of those files apply at once, and c-ares
keeps no cache: every answer is current.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

import pycares

from coatcheck.egress.resolver import NameNotFound
from coatcheck.egress.urls import Address

_FIRST_TRY_SECONDS: Final = 1.0
"""The timeout for one name server; it doubles in the next round."""
_TRIES: Final = 3
_FLAGS: Final = pycares.ARES_FLAG_EDNS | pycares.ARES_FLAG_IGNTC
"""Never falls back to TCP: a response of 64 KiB would hold thousands of addresses, each of which is
parsed, sorted and checked on the event loop. A UDP packet (1,232 bytes) holds about 70."""


async def ask_name_servers(host: str, *, servers: Sequence[str] = ()) -> list[Address]:
    """The addresses of ``host``, in the order to try them. Raises NameNotFound.

    Cancelling it stops the query.
    """
    try:
        query = _Query(host, servers)
    except (pycares.AresError, UnicodeError) as error:
        raise NameNotFound(f"{host} cannot be looked up") from error
    try:
        addresses = await query.answer
    finally:
        query.close()
    if not addresses:
        raise NameNotFound(f"{host} has no address")
    return addresses


class _Query:
    """One c-ares query, with its sockets and timers on the running loop."""

    def __init__(self, host: str, servers: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[list[Address]] = self._loop.create_future()
        self._watched: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._channel: pycares.Channel | None = pycares.Channel(
            flags=_FLAGS,
            timeout=_FIRST_TRY_SECONDS,
            tries=_TRIES,
            servers=list(servers) or None,
            sock_state_cb=self._watch,
        )
        try:
            self._channel.getaddrinfo(
                host,
                None,
                family=socket.AF_UNSPEC,
                type=socket.SOCK_STREAM,
                callback=self._answered,
            )
        except BaseException:
            self.close()
            raise
        self._set_timer()

    def close(self) -> None:
        """Stop the query. On the loop's thread: pycares destroys a channel on a thread of its own,
        which must have nothing left to call back."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        self.answer.cancel()  # a no-op if the answer has arrived
        channel.cancel()
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        if self._timer is not None:
            self._timer.cancel()
        channel.close()

    def _watch(self, descriptor: int, readable: bool, writable: bool) -> None:
        """c-ares reports what it waits for on a socket; neither means that it will close it."""
        if self._loop.is_closed():
            return
        bad = pycares.ARES_SOCKET_BAD
        if readable:
            self._loop.add_reader(descriptor, self._process, descriptor, bad)
        else:
            self._loop.remove_reader(descriptor)
        if writable:
            self._loop.add_writer(descriptor, self._process, bad, descriptor)
        else:
            self._loop.remove_writer(descriptor)
        if readable or writable:
            self._watched.add(descriptor)
        else:
            self._watched.discard(descriptor)

    def _process(self, readable: int, writable: int) -> None:
        if self._channel is not None:
            self._channel.process_fd(readable, writable)
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._channel is not None and not self.answer.done():
            bad = pycares.ARES_SOCKET_BAD
            seconds: float = self._channel.timeout()  # type: ignore[no-untyped-call]
            self._timer = self._loop.call_later(seconds, self._process, bad, bad)

    def _answered(self, result: pycares.AddrInfoResult | None, error: int | None) -> None:
        if self.answer.done():
            return
        if result is None:
            code = None if error is None else pycares.errno.errorcode.get(error)
            self.answer.set_exception(NameNotFound(f"the look-up ended with {code}"))
            return
        found = (ipaddress.ip_address(node.addr[0].decode()) for node in result.nodes)
        self.answer.set_result(list(dict.fromkeys(found)))
