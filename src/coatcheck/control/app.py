"""The control plane's composition root: every route, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coatcheck.control.asgi import ASGIApp
from coatcheck.control.cross_origin import CrossOrigin
from coatcheck.control.dispatch import Dispatcher
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.control.routes import (
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
from coatcheck.version import __version__

Surface = Callable[[Parts], Sequence[Operation]]
"""Makes a surface's routes on the control plane's parts."""

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
        operations += surface(parts)
    operations += docs.operations()
    operations.append(openapi.operation(operations, version=__version__))
    api = _dispatcher(operations, parts)
    if pages is None:
        return api
    return _dispatcher([*operations, *pages(parts, api)], parts)


def _dispatcher(operations: list[Operation], parts: Parts) -> Dispatcher:
    return Dispatcher(
        operations,
        parts.gate.admit,
        parts.gate.watch,
        lambda: parts.draining.begun,
        parts.held_answers,
        bodies=parts.bodies,
        large_answers=parts.large_answers,
        cross_origin=CrossOrigin(parts.settings.cors_origins),
    )
