from __future__ import annotations

import asyncio
import gc
import socket

import httpx2
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response
from coatcheck.http.routing import Handler, Route
from coatcheck.http.server import HttpServer, ListenError, listen


def app(handler: Handler, draining: ServerDraining | None = None) -> Dispatcher:
    """One route, open to anyone."""

    async def admit(request: Request, route: Route) -> RawHeaders:
        raise AssertionError("the route is open")

    return Dispatcher(
        [Route(["GET"], "/", "root", "The root.", handler, [], "test")],
        admit,
        drains=lambda: draining is not None and draining.begun,
    )


async def test_a_stopping_server_ends_its_open_requests_and_takes_no_more() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        entered.set()
        await release.wait()
        return Response(200, b"done")

    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server = HttpServer(app(slow), drain_seconds=30)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
        request = asyncio.create_task(client.get(url))
        await entered.wait()
        server.stop()
        while listening.fileno() != -1:
            await asyncio.sleep(0.01)
        async with httpx2.AsyncClient(trust_env=False) as latecomer:
            with pytest.raises(httpx2.ConnectError):
                await latecomer.get(url)
        assert not serving.done()
        release.set()
        answer = await request
        assert (answer.status_code, answer.text) == (200, "done")
    await serving


async def test_a_request_that_does_not_end_in_time_is_told_that_it_may_have_taken_effect() -> None:
    entered = asyncio.Event()

    async def stuck(_: Request) -> Response:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    draining = ServerDraining()
    server = HttpServer(app(stuck, draining), drain_seconds=0, draining=draining)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
        request = asyncio.create_task(client.get(url))
        await entered.wait()
        server.stop()
        await serving
        answer = await request
    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
    assert int(answer.headers["retry-after"]) > 0


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"127.0.0.1 port {port}: .*\n.*--port"):
            listen("127.0.0.1", port)


def test_a_host_that_is_not_this_machine_is_refused() -> None:
    with pytest.raises(ListenError, match="cannot listen on 192\\.0\\.2\\.1"):
        listen("192.0.2.1", 0)


def test_ipv6_can_be_listened_on() -> None:
    with listen("::1", 0) as listening:
        assert listening.family is socket.AF_INET6


def test_no_piece_of_an_answer_waits_for_the_one_before_to_be_acknowledged() -> None:
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def request_cycles() -> set[RequestResponseCycle]:
    """The requests of all servers in this process that the collector knows."""
    return {each for each in gc.get_objects() if type(each) is RequestResponseCycle}


async def test_answered_requests_are_freed_without_the_garbage_collector() -> None:
    async def answer(_: Request) -> Response:
        return Response(200, b"done")

    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server = HttpServer(app(answer), drain_seconds=30)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    gc.collect()
    gc.disable()
    try:
        of_others = request_cycles()
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            for _ in range(10):
                assert (await client.get(url)).text == "done"
            kept = request_cycles() - of_others
    finally:
        gc.enable()
    assert len(kept) == 1, "a connection keeps its last request"
    server.stop()
    await serving
