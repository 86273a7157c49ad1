"""Builds the HTTP application: every route, and the rules that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from coatcheck.http.context import ServerContext
from coatcheck.http.cors import CrossOrigin
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.problem_formats import ProblemFormat
from coatcheck.http.response import ASGIApp
from coatcheck.http.routes import (
    api_keys,
    blobs,
    docs,
    health,
    overview,
    remote_callbacks,
    stripe,
    usage,
    webhook_endpoints,
)
from coatcheck.http.routing import Route
from coatcheck.version import __version__


@dataclass(frozen=True, slots=True)
class ProductRoutes:
    """The routes, error formats and headers that a product adds to the HTTP API."""

    routes: Callable[[ServerContext], Sequence[Route]]
    """Makes its routes from the server's parts."""
    unrouted_formats: Mapping[str, ProblemFormat] = field(default_factory=dict)
    """The format of errors at paths that have no route, by path prefix."""
    request_headers: Sequence[str] = ()
    """Headers that its routes read. Pages of other origins may send them (CORS)."""
    response_headers: Sequence[str] = ()
    """Headers that its routes answer with. Pages of other origins may read them (CORS)."""
    jobs_listed_as: str | None = None
    """The ``surface`` of its jobs in an organisation's list; None if it has no jobs there."""


Pages = Callable[[ServerContext, ASGIApp, Sequence[str]], Sequence[Route]]
"""Makes the dashboard's pages. They call the application that they are given, the public API, and
offer the products whose jobs can be listed."""


def create_app(
    server: ServerContext, products: Sequence[ProductRoutes] = (), pages: Pages | None = None
) -> Dispatcher:
    """The application that ``coatcheck serve`` runs.

    ``pages`` call the API and are not a part of it: the OpenAPI document lists none of them, and
    they cannot be reached through the application that they are given.
    """

    routes = [
        *health.health_routes(server.readiness.checks()),
        *health.metrics_routes(server.engine.overviews.queue, server.process_metrics),
        *api_keys.me_routes(server.gate),
        *usage.usage_routes(server.engine),
        *usage.report_routes(server.engine),
        *overview.routes(server.engine),
        *api_keys.routes(server.settings, server.tenants),
        *stripe.routes(server.settings, server.tenants),
        *webhook_endpoints.routes(server.engine.webhooks, server.receivers),
        *blobs.routes(server.engine, server.tenants, processes=server.settings.processes),
        *remote_callbacks.routes(server.remote_calls),
    ]
    for product in products:
        routes += product.routes(server)
    routes += docs.docs_routes()
    routes.append(docs.openapi_route(routes, version=__version__))
    api = _dispatcher(routes, server, products)
    if pages is None:
        return api
    listed = [each.jobs_listed_as for each in products if each.jobs_listed_as is not None]
    return _dispatcher([*routes, *pages(server, api, listed)], server, products)


def _dispatcher(
    routes: list[Route], server: ServerContext, products: Sequence[ProductRoutes]
) -> Dispatcher:
    formats: dict[str, ProblemFormat] = {}
    for product in products:
        formats |= product.unrouted_formats
    return Dispatcher(
        routes,
        server.gate.admit,
        server.gate.watch,
        lambda: server.draining.begun,
        server.open_responses,
        bodies=server.bodies,
        large_responses=server.large_responses,
        cross_origin=CrossOrigin(
            server.settings.cors_origins,
            request_headers=chain.from_iterable(each.request_headers for each in products),
            response_headers=chain.from_iterable(each.response_headers for each in products),
        ),
        unrouted_formats=formats,
    )
