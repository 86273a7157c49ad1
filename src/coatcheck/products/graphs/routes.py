"""Assembles the graphs routes, job adapter and webhook renderer."""

from __future__ import annotations

from dataclasses import replace

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.http.routing import Route
from coatcheck.products.graphs import read_routes, submit_routes, webhook_payloads
from coatcheck.products.graphs.context import GraphsContext
from coatcheck.products.graphs.job_adapter import GraphsJobAdapter
from coatcheck.products.graphs.presenter import GraphsPresenter


def routes(server: ServerContext) -> list[Route]:
    """Every route of the product."""
    context = GraphsContext(
        settings=server.settings,
        engine=server.engine,
        gate=server.gate,
        responses=server.responses,
        presenter=_presenter(server),
        guard=server.receivers,
    )
    routes = [
        *submit_routes.routes(context),
        *read_routes.routes(context),
        *read_routes.file_routes(server, context),
    ]
    return [replace(route, ignores_query=True) for route in routes]


def payload_renderer(server: ServerContext) -> JobRenderer:
    """Renders graphs jobs for webhooks."""
    return webhook_payloads.renderer(_presenter(server))


def job_adapter(server: ServerContext) -> JobAdapter:
    """Adapts graphs jobs for the console."""
    return GraphsJobAdapter(server.engine, server.remote_calls)


def _presenter(server: ServerContext) -> GraphsPresenter:
    return GraphsPresenter(
        server.engine, server.responses, server.settings.graphs_retry_after_seconds
    )
