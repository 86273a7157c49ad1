"""The control plane's composition root: every route, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from coatcheck.http.asgi import ASGIApp
from coatcheck.http.context import Parts
from coatcheck.http.cors import CrossOrigin
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.problem_formats import ProblemFormat
from coatcheck.http.routes import (
    api_keys,
    blobs,
    docs,
    health,
    me,
    metrics,
    openapi,
    overview,
    remote_callbacks,
    stripe,
    usage,
    usage_reports,
    webhooks,
)
from coatcheck.http.routing import Operation
from coatcheck.version import __version__


@dataclass(frozen=True, slots=True)
class Surface:
    """What a product adds to the HTTP API."""

    operations: Callable[[Parts], Sequence[Operation]]
    """Makes its routes on the control plane's parts."""
    unrouted_formats: Mapping[str, ProblemFormat] = field(default_factory=dict)
    """How errors are written where no route is found, by path prefix."""
    request_headers: Sequence[str] = ()
    """What its routes read, and pages of other origins may send."""
    response_headers: Sequence[str] = ()
    """What its routes answer, and pages of other origins may read."""


Pages = Callable[[Parts, ASGIApp], Sequence[Operation]]
"""Makes pages for people, which ask the application that it is given: the public API."""


def create_app(
    parts: Parts, surfaces: Sequence[Surface] = (), pages: Pages | None = None
) -> Dispatcher:
    """The application that ``coatcheck serve`` runs.

    ``pages`` stand before the API, call it, and are no part of it: the OpenAPI document has none of
    them, and they cannot be reached through the application that they are given.
    """

    operations = [
        *health.operations(parts.readiness.checks()),
        *metrics.operations(parts.engine.overviews.queue, parts.process_metrics),
        *me.operations(parts.gate),
        *usage.operations(parts.engine),
        *usage_reports.operations(parts.engine),
        *overview.operations(parts.engine),
        *api_keys.operations(parts.settings, parts.tenants),
        *stripe.operations(parts.settings, parts.tenants),
        *webhooks.operations(parts.engine.webhooks, parts.receivers, parts.tenants),
        *blobs.operations(parts.engine, parts.tenants),
        *remote_callbacks.operations(parts.remote_calls),
    ]
    for surface in surfaces:
        operations += surface.operations(parts)
    operations += docs.operations()
    operations.append(openapi.operation(operations, version=__version__))
    api = _dispatcher(operations, parts, surfaces)
    if pages is None:
        return api
    return _dispatcher([*operations, *pages(parts, api)], parts, surfaces)


def _dispatcher(
    operations: list[Operation], parts: Parts, surfaces: Sequence[Surface]
) -> Dispatcher:
    formats: dict[str, ProblemFormat] = {}
    for surface in surfaces:
        formats |= surface.unrouted_formats
    return Dispatcher(
        operations,
        parts.gate.admit,
        parts.gate.watch,
        lambda: parts.draining.begun,
        parts.held_answers,
        bodies=parts.bodies,
        large_answers=parts.large_answers,
        cross_origin=CrossOrigin(
            parts.settings.cors_origins,
            request_headers=chain.from_iterable(each.request_headers for each in surfaces),
            response_headers=chain.from_iterable(each.response_headers for each in surfaces),
        ),
        unrouted_formats=formats,
    )
