"""A name server on the loopback: a real one, by UDP, that leaves some questions unanswered."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

Answer = Sequence[str] | None
"""Addresses, none if there is no such name; None to say nothing at all."""

_A: Final = 1
_AAAA: Final = 28
_RESPONSE: Final = 0x8180
_NO_SUCH_NAME: Final = 3
_NAME_OF_THE_QUESTION: Final = 0xC00C


class NameServer(asyncio.DatagramProtocol):
    """Answers with what ``answer`` has for a name, and its turn: how often it was asked before."""

    def __init__(self, answer: Callable[[str, int], Answer]) -> None:
        self._answer = answer
        self._transport: asyncio.DatagramTransport | None = None
        self.asked: Counter[str] = Counter()
        """Questions for IPv4 addresses, by name."""
        self._turns: Counter[tuple[str, int]] = Counter()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's is none by type
        host, port = transport.get_extra_info("sockname")
        self.address = f"{host}:{port}"

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        name, kind, end = _question(data)
        turn = self._turns[name, kind]
        self._turns[name, kind] += 1
        if kind == _A:
            self.asked[name] += 1
        addresses = self._answer(name, turn)
        if addresses is None:
            return
        version = 4 if kind == _A else 6
        packed = [ipaddress.ip_address(text) for text in addresses]
        records = [
            struct.pack("!HHHIH", _NAME_OF_THE_QUESTION, kind, 1, 0, len(address.packed))
            + address.packed
            for address in packed
            if address.version == version and kind in (_A, _AAAA)
        ]
        flags = _RESPONSE | (0 if addresses else _NO_SUCH_NAME)
        head = data[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        assert self._transport is not None
        self._transport.sendto(head + data[12:end] + b"".join(records), source)


def _question(data: bytes) -> tuple[str, int, int]:
    """The name that is asked for, in lower case, the kind of record, and where that ends."""
    labels, at = [], 12
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    (kind,) = struct.unpack_from("!H", data, at + 1)
    return ".".join(labels), kind, at + 5


@asynccontextmanager
async def name_server(
    answer: Callable[[str, int], Answer], *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[NameServer]:
    """A name server that runs until it is left."""
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: NameServer(answer), local_addr=(host, port)
    )
    try:
        yield server
    finally:
        transport.close()
