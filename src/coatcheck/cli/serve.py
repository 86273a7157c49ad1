"""``coatcheck serve``: the control plane's process."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from typing import Annotated, Final
from uuid import UUID

import typer

from coatcheck.cli.environment import overridden, prepare
from coatcheck.cli.errors import reporting_errors
from coatcheck.cli.process import (
    delivering,
    end_with_supervisor,
    keeping_up,
    run_until_told,
    tracing_as,
)
from coatcheck.control.app import create_app
from coatcheck.control.connections import WhenFull, possible
from coatcheck.control.parts import open_parts
from coatcheck.control.protocol import Bounds
from coatcheck.control.server import Server, listen
from coatcheck.dashboard import pages
from coatcheck.engine import Engine
from coatcheck.hosting.serving import surfaces, webhook_payloads
from coatcheck.product import Products
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)

_COLLECTED_OBJECTS: Final = 10_000
"""Allocations between two looks at the youngest objects; Python's own number is 700."""


@reporting_errors
def serve(
    host: Annotated[str | None, typer.Option(help="Instead of COATCHECK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of COATCHECK_PORT.")] = None,
    supervised: Annotated[UUID | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve HTTP on the database named by COATCHECK_DATABASE_URL.

    SIGTERM or Ctrl-C: takes no more connections, lets open requests end, stops.
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
        run_until_told(lambda stop: _serve(settings, products, listening, stop))


def _spare_the_collector() -> None:
    """Have the garbage collector look at what requests leave behind, and seldom.

    A request leaves hardly any cycles, yet allocates enough to make the collector walk through all
    that was loaded at the start, over and over.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS, *gc.get_threshold()[1:])


def _connections(settings: Settings) -> int:
    wanted = settings.connections
    most = possible(wanted)
    if most < wanted:
        _log.warning("at most %d connections: the system allows no more open files", most)
    return most


async def _serve(
    settings: Settings, products: Products, listening: socket.socket, stop: asyncio.Event
) -> None:
    async with (
        await Engine.connect(settings) as engine,
        open_parts(
            settings,
            engine,
            keepers=products.result_stores(),
            operators=products.operator_remotes(settings),
        ) as parts,
        keeping_up(settings, products),
        delivering(settings, webhook_payloads(products, parts).body),
    ):
        app = create_app(parts, surfaces(products), pages.operations)
        server = Server(
            app,
            drain_seconds=settings.drain_seconds,
            draining=parts.draining,
            bounds=Bounds(
                connections=_connections(settings),
                connections_of_one_address=settings.connections_per_address,
                proxies=settings.proxies,
            ),
            when_full=WhenFull(app, parts.gate),
        )

        async def stop_when_told() -> None:
            await stop.wait()
            server.stop()

        stopper = asyncio.create_task(stop_when_told())
        _spare_the_collector()
        _log.info("serving on http://%s:%d", settings.host, settings.port)
        try:
            await server.serve(sockets=[listening])
        finally:
            stopper.cancel()
    _log.info("stopped")
