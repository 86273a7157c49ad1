"""A server with as many connections as it may have: who is answered all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from coatcheck.http.app import create_app
from coatcheck.http.connections import FullServerApp
from coatcheck.http.protocol import Bounds
from coatcheck.http.server import HttpServer, listen
from tests.all_products import SURFACES
from tests.deployment import Deployment, bearer
from tests.http.limits.wire import RouteServer, Wire, connected
from tests.waiting import eventually_async

ME = b"GET /api/v1/me HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %s\r\n\r\n"
HALF = b"GET /healthz HTTP/1.1\r\nhost: a\r\n"


@asynccontextmanager
async def replica(deployment: Deployment, bounds: Bounds) -> AsyncIterator[RouteServer]:
    """One more server of the deployment, within ``bounds``."""
    app = create_app(deployment.context, SURFACES)
    gate = deployment.context.gate
    server = HttpServer(app, drain_seconds=5, bounds=bounds, when_full=FullServerApp(app, gate))
    listening = listen("127.0.0.1", 0)
    served = RouteServer(port=listening.getsockname()[1], server=server)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield served
    finally:
        server.stop()
        await serving


async def say_half(open_wires: AsyncExitStack, served: RouteServer, count: int) -> list[Wire]:
    """So many connections, each in the middle of a request."""
    wires = [await open_wires.enter_async_context(connected(served)) for _ in range(count)]
    for wire in wires:
        await wire.say(HALF)

    async def counted() -> bool:
        assert served.server is not None
        return len(served.server.server_state.connections) >= count

    await eventually_async(counted, f"{count} connections are open")
    return wires


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, operator_org="operators") as made:
        await made.create_org("operators")
        yield made


async def test_health_checks_and_operators_are_answered_by_a_full_server(
    deployment: Deployment,
) -> None:
    operator = await deployment.create_key("operators")
    async with (
        replica(deployment, Bounds(connections=2, head_seconds=60)) as served,
        AsyncExitStack() as open_wires,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as client,
    ):
        first, _ = await say_half(open_wires, served, 2)
        for path, headers, status in (
            ("/healthz", {}, 200),
            ("/readyz", {}, 200),
            ("/api/v1/me", bearer(operator), 200),
            ("/api/v1/me", bearer(deployment.key), 503),
            ("/api/v1/me", bearer("cck_no_key"), 503),
            ("/docs", {}, 503),
        ):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.headers["connection"]) == (status, "close"), path
            if status == 503:
                assert answer.json()["code"] == "too_many_connections"
                assert int(answer.headers["retry-after"]) > 0
        await first.say(b"\r\n")
        assert (await first.answer()).status == 200


async def test_a_credential_frees_what_its_address_may_have(deployment: Deployment) -> None:
    bounds = Bounds(connections_of_one_address=2, proxies=())
    async with replica(deployment, bounds) as served, AsyncExitStack() as open_wires:
        for _ in range(4):
            wire = await open_wires.enter_async_context(connected(served))
            await wire.say(ME % deployment.key.encode())
            assert (await wire.answer()).status == 200
        await say_half(open_wires, served, 2)
        refused = await open_wires.enter_async_context(connected(served))
        assert (await refused.answer()).json()["code"] == "too_many_connections_of_address"


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/v1/chat/completions", "application/json"),
        ("/api/chat", "application/json"),
        ("/v1/jobs", "application/problem+json"),
    ],
)
async def test_a_full_server_refuses_in_the_style_of_the_path(
    deployment: Deployment, path: str, media_type: str
) -> None:
    async with (
        replica(deployment, Bounds(connections=2, head_seconds=60)) as served,
        AsyncExitStack() as open_wires,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as client,
    ):
        await say_half(open_wires, served, 2)
        refused = await client.get(path)
    assert (refused.status_code, refused.headers["Content-Type"]) == (503, media_type)
    assert ("error" in refused.json()) == (media_type == "application/json")
