"""``coatcheck serve``: the API server."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated
from uuid import UUID, uuid4

import typer

from coatcheck.cli.command_errors import reporting_errors
from coatcheck.cli.environment import overridden, prepare
from coatcheck.cli.process import (
    collect_garbage_rarely,
    delivering,
    end_with_supervisor,
    maintaining,
    run_until_signal,
    tracing_as,
)
from coatcheck.cli.server_processes import AllEnded, run_server_processes
from coatcheck.core import Engine
from coatcheck.dashboard import pages
from coatcheck.db.database import Database
from coatcheck.domain.bounds import share
from coatcheck.hosting import product_routes, webhook_payloads
from coatcheck.http.app import create_app
from coatcheck.http.connections import FullServerApp, possible_connections
from coatcheck.http.context import open_server_context
from coatcheck.http.protocol import Bounds
from coatcheck.http.server import HttpServer, listen
from coatcheck.product import Products
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)


@reporting_errors
def serve(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on, instead of COATCHECK_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on, instead of COATCHECK_PORT.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="How many processes to run, instead of COATCHECK_PROCESSES.")
    ] = None,
    supervised: Annotated[UUID | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the API server.

    It uses the database in COATCHECK_DATABASE_URL. On SIGTERM or Ctrl-C it accepts no
    more connections, finishes open requests and exits. With several processes it keeps
    each of them running.
    """
    settings = Settings.from_environment(
        overridden(
            {
                "COATCHECK_HOST": host,
                "COATCHECK_PORT": port,
                "COATCHECK_PROCESSES": processes,
            }
        )
    )
    prepare(settings)
    settings.require_for_serving()
    products = Products.load(settings.products)
    with listen(settings.host, settings.port) as listening:
        ready: Callable[[], None] = partial(
            _log.info, "serving on http://%s:%d", settings.host, settings.port
        )
        if settings.processes > 1:
            ready = _become_one_of_several(settings, listening, supervised)
        elif supervised is not None:
            end_with_supervisor(supervised, settings.drain_seconds)
        with tracing_as("serve"):
            run_until_signal(
                lambda stop: _serve(settings, products, listening, ready, stop),
                is_supervised=settings.processes > 1 or supervised is not None,
            )


def _become_one_of_several(
    settings: Settings, listening: socket.socket, supervised: UUID | None
) -> Callable[[], None]:
    """Return in each of the server's processes, with what to call when it is ready.

    Their supervisor stays here, and exits when they have ended.
    """
    process = run_server_processes(
        settings.processes,
        listening,
        drain_seconds=settings.drain_seconds,
        stdin=None if supervised is None else sys.stdin.fileno(),
    )
    if isinstance(process, AllEnded):
        _log.info("stopped")
        raise typer.Exit(process.exit_code)
    end_with_supervisor(uuid4(), settings.drain_seconds, process.supervisor)
    metrics.name_server_process(process.number, is_restarted=process.is_restarted)
    return process.ready


def _connections(settings: Settings) -> int:
    wanted = share(settings.connections, settings.processes)
    most = possible_connections(wanted)
    if most < wanted:
        _log.warning("limited to %d connections by the system's limit on open files", most)
    return most


async def _serve(
    settings: Settings,
    products: Products,
    listening: socket.socket,
    ready: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    async with (
        Database.of_server(settings.database_url) as database,
        await Engine.connect(settings, database=database) as engine,
        open_server_context(
            settings,
            engine,
            result_stores=products.result_stores(),
            operators=products.operator_remotes(settings),
        ) as server_context,
        maintaining(settings, products, database),
        delivering(settings, webhook_payloads(products, server_context).body, database),
    ):
        app = create_app(server_context, product_routes(products), pages.routes)
        server = HttpServer(
            app,
            drain_seconds=settings.drain_seconds,
            draining=server_context.draining,
            bounds=Bounds(
                connections=_connections(settings),
                connections_of_one_address=share(
                    settings.connections_per_address, settings.processes
                ),
                proxies=settings.proxies,
                unread_bodies_bytes=share(Bounds().unread_bodies_bytes, settings.processes),
            ),
            when_full=FullServerApp(app, server_context.gate),
        )

        async def stop_on_signal() -> None:
            await stop.wait()
            server.stop()

        stopper = asyncio.create_task(stop_on_signal())
        collect_garbage_rarely()
        ready()
        try:
            await server.serve(sockets=[listening])
        finally:
            stopper.cancel()
    _log.info("stopped")
