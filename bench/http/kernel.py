"""Measures the HTTP kernel's cost per request against the same handler on Starlette
(docs/adr/0013).

    bench/.venv/bin/python -m bench.http.kernel            # 9 rounds, about 6 minutes

Both applications have 121 routes of one shape. The first and the last of them are called, because
Starlette tries its routes one after the other. The first table times the application alone, called
as a server would call it. The second has both on Coatcheck's server, under wrk. The third has the
submit and the status read of ``coatcheck serve`` on PostgreSQL, under wrk. "Two writes" is the
kernel without ``http/dispatch.py``.

Figures are microseconds a request: the median of the rounds, and the least and the greatest. Under
wrk it is the CPU time of the server's thread, which other processes of the machine disturb little.
Compared figures are measured in turn, in every round.
"""

import argparse
import asyncio
import contextlib
import gc
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.http import wrk
from bench.http.scenario import JSON, first_job
from bench.http.servers import TWO_WRITES, answering, control_plane, free_port, worker
from bench.measure import Spread
from bench.payload import payload_bytes
from bench.postgres import Postgres
from bench.processes import Child, Processes
from bench.tables import table
from coatcheck import Job, Service
from coatcheck.http import dispatch
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.request import Request as KernelRequest
from coatcheck.http.response import RawHeaders, json_response
from coatcheck.http.response import Response as KernelResponse
from coatcheck.http.routing import Route as KernelRoute
from coatcheck.http.server import HttpServer, listen

ROUTES = 121
REQUESTS = 3_000
WARM_UP_SECONDS = 1.0
SECONDS = 2.0
_PLACES = {"first route": 0, "last route": ROUTES - 1}
_HEADERS = [
    (b"host", b"127.0.0.1"),
    (b"accept", b"*/*"),
    (b"authorization", b"Bearer cck_0123456789abcdef"),
]

App = Callable[[Any, Any, Any], Awaitable[None]]

noop = Service("noop")


@noop.post("/run")
async def run(job: Job, n: int, pad: str) -> dict[str, int]:
    return {"n": n}


def _path(route: int) -> str:
    return f"/api/v1/kind{route}/items/{{id}}"


def _body(item: str) -> dict[str, object]:
    return {"id": item, "state": "completed", "attempts": 1, "result": {"ok": True}}


def kernel_app() -> App:
    async def show(request: KernelRequest) -> KernelResponse:
        return json_response(_body(request.params["id"]))

    async def admit(request: KernelRequest, route: KernelRoute) -> RawHeaders:
        return ()

    return Dispatcher(
        [
            KernelRoute(["GET"], _path(route), f"show{route}", "", show, [], "bench")
            for route in range(ROUTES)
        ],
        admit,
    )


def starlette_app() -> App:
    async def show(request: Request) -> Response:
        body = msgspec.json.encode(_body(request.path_params["id"]))
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route(_path(route), show) for route in range(ROUTES)])


def kernel_app_of_two_writes() -> App:
    """Head and body of every answer as two messages, and two writes, as any ASGI server does."""
    dispatch.write_whole = lambda *_: False
    return kernel_app()


APPS: dict[str, Callable[[], App]] = {
    "kernel": kernel_app,
    "kernel, two writes": kernel_app_of_two_writes,
    "Starlette": starlette_app,
}


async def application_alone(rounds: int) -> dict[str, Spread]:
    """Microseconds of CPU a request, without a server."""
    apps = {"kernel": kernel_app(), "Starlette": starlette_app()}
    gc.collect()
    gc.freeze()
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, app in apps.items():
            for place, route in _PLACES.items():
                found[f"{name}, {place}"].append(await _request(app, route))
    return {name: Spread.of(values) for name, values in found.items()}


async def _request(app: App, route: int) -> float:
    path = _path(route).replace("{id}", "01K9ZZZZZZZZZZZZZZZZZZZZZZ")
    statuses: set[int] = set()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    begun = time.process_time()
    for _ in range(REQUESTS):
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": _HEADERS,
            "root_path": "",
            "client": ("127.0.0.1", 1),
        }
        await app(scope, receive, send)
    spent = time.process_time() - begun
    assert statuses == {200}, statuses
    return spent / REQUESTS * 1e6


async def served(rounds: int) -> tuple[dict[str, Spread], dict[str, Spread]]:
    """Microseconds of the server's CPU a request, and requests a second, under wrk."""
    spent: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        processes = Processes(folder)
        servers: dict[str, tuple[Child, int]] = {}
        try:
            for name in APPS:
                port = free_port()
                command = (sys.executable, "-m", "bench.http.kernel", "--serve", name)
                child = await processes.start("app", [*command, "--port", str(port)], {})
                servers[name] = (child, port)
                await answering(port, child)
            for _ in range(rounds):
                for name, (child, port) in servers.items():
                    for place, route in _PLACES.items():
                        path = _path(route).replace("{id}", "01K9ZZZZZZZZZZZZZZZZZZZZZZ")
                        load = wrk.Load(f"http://127.0.0.1:{port}{path}")
                        cpu, rate = await _under(load, child, folder)
                        spent[f"{name}, {place}"].append(cpu)
                        rates[f"{name}, {place}"].append(rate)
        finally:
            for child, _ in servers.values():
                await processes.stop(child)
    return (
        {name: Spread.of(values) for name, values in spent.items()},
        {name: Spread.of(values) for name, values in rates.items()},
    )


async def hot_routes(rounds: int) -> tuple[dict[str, Spread], dict[str, Spread]]:
    """The same for the submit and the status read of ``coatcheck serve``."""
    spent: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # PostgreSQL runs as another user
        processes = Processes(folder)
        postgres = Postgres(folder / "postgres")
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        loads = {}
        for name, more in (("one write", {}), ("two writes", {"program": TWO_WRITES})):
            address = await postgres.create_template(name.replace(" ", "_"))
            command = [sys.executable, "-m", "coatcheck.cli", "migrate"]
            migrated = await processes.start(
                "migrate", command, {"COATCHECK_DATABASE_URL": address}
            )
            await migrated.process.wait()
            plane = await stack.enter_async_context(control_plane(address, processes, **more))
            async with worker(plane, processes, {}, service="bench.http.kernel:noop") as child:
                poll_url = await first_job(plane, child)
            bearer = {"Authorization": f"Bearer {plane.key}"}
            body = payload_bytes(1).decode()
            submit = wrk.Load(plane.url + plane.submit_path, "POST", JSON | bearer, body)
            loads[f"submit, {name}"] = (plane.child, submit)
            loads[f"status read, {name}"] = (
                plane.child,
                wrk.Load(plane.url + poll_url, "GET", bearer),
            )
        for _ in range(rounds):
            # Compared figures are measured right after each other.
            for name, (child, load) in sorted(loads.items()):
                cpu, rate = await _under(load, child, folder)
                spent[name].append(cpu)
                rates[name].append(rate)
    return (
        {name: Spread.of(spent[name]) for name in sorted(spent)},
        {name: Spread.of(rates[name]) for name in sorted(rates)},
    )


async def _under(load: wrk.Load, child: Child, folder: Path) -> tuple[float, float]:
    """Microseconds of the server's CPU a request, and requests a second."""
    await wrk.run(load, WARM_UP_SECONDS, folder)
    before = _cpu_seconds(child)
    answered = await wrk.run(load, SECONDS, folder)
    cpu = _cpu_seconds(child) - before
    return cpu / answered.requests * 1e6, answered.per_second


def _cpu_seconds(child: Child) -> float:
    """CPU time of the process's first thread, which is the one that serves."""
    nanoseconds, *_ = Path(f"/proc/{child.process.pid}/schedstat").read_text().split()
    return int(nanoseconds) / 1e9


async def serve(name: str, port: int) -> None:
    server = HttpServer(APPS[name](), drain_seconds=1)
    gc.collect()
    gc.freeze()
    await server.serve(sockets=[listen("127.0.0.1", port)])


def _row(name: str, *spreads: Spread) -> list[str]:
    figures = [f"{each.median:,.1f} ({each.least:,.1f}..{each.greatest:,.1f})" for each in spreads]
    return [name, *figures]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("alone", "socket", "serve"), help="one of the tables")
    parser.add_argument("--serve", choices=tuple(APPS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        uvloop.run(serve(given.serve, given.port))
        return
    if given.only in (None, "alone"):
        alone = uvloop.run(application_alone(given.rounds))
        rows = [_row(name, each) for name, each in alone.items()]
        print(table(["application alone", "us"], rows), flush=True)
    for part, title, measure in (
        ("socket", "on a socket", served),
        ("serve", "coatcheck serve", hot_routes),
    ):
        if given.only not in (None, part):
            continue
        spent, rates = asyncio.run(measure(given.rounds))
        rows = [_row(name, spent[name], rates[name]) for name in spent]
        print("\n" + table([title, "us of CPU", "requests/s"], rows), flush=True)


if __name__ == "__main__":
    main()
