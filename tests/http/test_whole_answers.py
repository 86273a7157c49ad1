"""Answers that are written in one go, and those that are not, look the same from outside."""

from __future__ import annotations

import asyncio

import httpx2

HEAD_END = b"\r\n\r\n"


async def test_two_requests_in_one_piece_are_answered_in_order(
    client: httpx2.AsyncClient,
) -> None:
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    ask = b"GET %b HTTP/1.1\r\nHost: a\r\nX-Request-Id: %b\r\n\r\n"
    writer.write(ask % (b"/healthz", b"one") + ask % (b"/nothing", b"two"))
    writer.write(ask % (b"/healthz", b"three"))
    for request_id, status in ((b"one", b"200"), (b"two", b"404"), (b"three", b"200")):
        head = await reader.readuntil(HEAD_END)
        assert head.split()[1] == status
        assert b"x-request-id: " + request_id in head
        (length,) = [
            int(line.split(b": ")[1]) for line in head.split(b"\r\n") if b"content-length" in line
        ]
        assert (await reader.readexactly(length)).startswith(b"{")
    writer.close()


async def test_a_caller_that_wants_the_connection_closed_is_told_so(
    client: httpx2.AsyncClient,
) -> None:
    kept = await client.get("/healthz")
    closed = await client.get("/healthz", headers={"Connection": "close"})
    assert "connection" not in kept.headers
    assert closed.headers["connection"] == "close"
    assert kept.content == closed.content


async def test_the_head_alone_is_that_of_the_whole_answer(client: httpx2.AsyncClient) -> None:
    whole = await client.get("/healthz")
    head = await client.head("/healthz")
    assert head.content == b""
    assert head.headers["content-length"] == str(len(whole.content))
    assert set(head.headers) == set(whole.headers)
