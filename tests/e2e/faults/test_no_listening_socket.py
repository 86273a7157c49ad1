"""A worker opens no door: it connects to the database, and nobody can connect to it."""

from __future__ import annotations

import socket

import psutil

from tests.e2e.faults.laboratory import Laboratory


async def test_a_worker_listens_on_no_socket(laboratory: Laboratory) -> None:
    worker = await laboratory.start_working()
    ticket = await laboratory.engine.submit("lab.post__wait", laboratory.payload(gate="gate"))
    await laboratory.until_executed(ticket)

    assert worker.listening() == []
    laboratory.open_gate("gate")
    await laboratory.end_of(ticket)


def test_a_listening_socket_would_have_been_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = psutil.Process().net_connections("inet")
        listening = [each.laddr for each in own if each.status == psutil.CONN_LISTEN]

        assert server.getsockname() in [tuple(address) for address in listening]
