"""A worker opens no door: it connects to the database, and nobody can connect to it."""

from __future__ import annotations

import socket

import psutil

from tests.deployment import Deployment
from tests.e2e.faults.roles import open_gate, payload, start_worker_process, wait_until_executed


async def test_a_worker_listens_on_no_socket(deployment: Deployment) -> None:
    worker = await start_worker_process(deployment)
    ticket = await deployment.engine.submit("lab.post__wait", payload(deployment, gate="gate"))
    await wait_until_executed(deployment, ticket)

    assert worker.listening() == []
    open_gate(deployment, "gate")
    await deployment.wait_for_end(ticket)


def test_a_listening_socket_would_have_been_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = psutil.Process().net_connections("inet")
        listening = [each.laddr for each in own if each.status == psutil.CONN_LISTEN]

        assert server.getsockname() in [tuple(address) for address in listening]
