"""The end of a connection, from the server's side."""

from __future__ import annotations

import asyncio
import socket

from tests.connections import break_off

MORE_THAN_BUFFERS_TAKE = b"x" * 16_777_216


async def _connected() -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamWriter]:
    here, there = socket.socketpair()
    _, server = await asyncio.open_connection(sock=here)
    reader, client = await asyncio.open_connection(sock=there)
    return server, reader, client


async def test_one_that_was_closed_and_has_sent_the_rest_since_is_left_alone() -> None:
    server, reader, client = await _connected()
    server.write(MORE_THAN_BUFFERS_TAKE)
    server.close()
    assert server.transport.get_write_buffer_size() > 0
    assert await reader.read(-1) == MORE_THAN_BUFFERS_TAKE
    await server.wait_closed()
    break_off(server)
    client.close()


async def test_one_that_was_closed_with_something_left_to_send_is_cut() -> None:
    server, reader, client = await _connected()
    server.write(MORE_THAN_BUFFERS_TAKE)
    server.close()
    break_off(server)
    assert len(await reader.read(-1)) < len(MORE_THAN_BUFFERS_TAKE)
    client.close()


async def test_one_that_is_open_is_cut() -> None:
    server, reader, client = await _connected()
    break_off(server)
    assert await reader.read(-1) == b""
    client.close()
