"""``coatcheck serve``: the API server."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Annotated
from uuid import UUID

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
from coatcheck.core import Engine
from coatcheck.dashboard import pages
from coatcheck.db.database import Database
from coatcheck.hosting import product_routes, webhook_payloads
from coatcheck.http.app import create_app
from coatcheck.http.connections import FullServerApp, possible_connections
from coatcheck.http.context import open_server_context
from coatcheck.http.protocol import Bounds
from coatcheck.http.server import HttpServer, listen
from coatcheck.product import Products
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)


@reporting_errors
def serve(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on, instead of COATCHECK_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on, instead of COATCHECK_PORT.")
    ] = None,
    supervised: Annotated[UUID | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the API server.

    It uses the database in COATCHECK_DATABASE_URL. On SIGTERM or Ctrl-C it accepts no
    more connections, finishes open requests and exits.
    """
    settings = Settings.from_environment(
        overridden({"COATCHECK_HOST": host, "COATCHECK_PORT": port})
    )
    prepare(settings)
    settings.require_for_serving()
    products = Products.load(settings.products)
    if supervised is not None:
        end_with_supervisor(supervised, settings.drain_seconds)
    with listen(settings.host, settings.port) as listening, tracing_as("serve"):
        run_until_signal(lambda stop: _serve(settings, products, listening, stop))


def _connections(settings: Settings) -> int:
    wanted = settings.connections
    most = possible_connections(wanted)
    if most < wanted:
        _log.warning("limited to %d connections by the system's limit on open files", most)
    return most


async def _serve(
    settings: Settings, products: Products, listening: socket.socket, stop: asyncio.Event
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
                connections_of_one_address=settings.connections_per_address,
                proxies=settings.proxies,
            ),
            when_full=FullServerApp(app, server_context.gate),
        )

        async def stop_on_signal() -> None:
            await stop.wait()
            server.stop()

        stopper = asyncio.create_task(stop_on_signal())
        collect_garbage_rarely()
        _log.info("serving on http://%s:%d", settings.host, settings.port)
        try:
            await server.serve(sockets=[listening])
        finally:
            stopper.cancel()
    _log.info("stopped")
