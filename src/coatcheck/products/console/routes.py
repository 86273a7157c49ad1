"""Assembles the console's routes."""

from __future__ import annotations

from coatcheck.http.routing import Route
from coatcheck.product import ProductContext
from coatcheck.products.console import action_routes, list_routes, operator_routes, read_routes
from coatcheck.products.console.adapters import JobAdapters
from coatcheck.products.console.context import ConsoleContext
from coatcheck.products.console.presenter import ConsolePresenter


def routes(context: ProductContext) -> list[Route]:
    """Every route of the console. Each product that is on shows its own jobs."""
    server = context.server
    shared = context_of(context)
    return [
        *list_routes.routes(shared),
        *read_routes.routes(shared),
        *action_routes.routes(shared),
        *read_routes.file_routes(server, shared),
        *operator_routes.routes(server.tenants),
    ]


def context_of(context: ProductContext) -> ConsoleContext:
    """The context of the console's routes."""
    server = context.server
    all_adapters = JobAdapters(server, context.products)
    return ConsoleContext(
        engine=server.engine,
        gate=server.gate,
        responses=server.responses,
        adapters=all_adapters,
        presenter=ConsolePresenter(server.engine, all_adapters),
    )
