"""The routes of all pages of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from coatcheck.dashboard import (
    assets,
    batches,
    job_page,
    jobs,
    keys,
    overview,
    paths,
    services,
    signing_in,
    usage,
    webhooks,
)
from coatcheck.dashboard.site import Site
from coatcheck.dashboard.visit import Visit
from coatcheck.domain.errors import NotFound
from coatcheck.http.context import ServerContext
from coatcheck.http.request import Request
from coatcheck.http.response import ASGIApp, Response, StreamResponse
from coatcheck.http.routing import Route


def routes(server: ServerContext, api: ASGIApp, products: Sequence[str]) -> list[Route]:
    """The dashboard's routes; ``api`` is the ASGI application of the public API, ``products`` are
    those whose jobs can be listed."""
    site = Site(server.settings, server.draining, api)
    return [
        assets.route(),
        *signing_in.routes(site),
        *overview.routes(site),
        *jobs.routes(site, products),
        *job_page.routes(site),
        *batches.routes(site),
        *webhooks.routes(site),
        *services.routes(site),
        *keys.routes(site),
        *usage.routes(site),
        *_entry_points(site),
    ]


def _entry_points(site: Site) -> list[Route]:
    """Redirects to the first page, and the 404 page."""

    async def go_home(_: Request) -> Response | StreamResponse:
        return Response(HTTPStatus.SEE_OTHER, b"", [(b"location", paths.HOME.encode())])

    async def not_found(_: Visit) -> Response | StreamResponse:
        raise NotFound

    return [
        site.open_page(["GET"], "/", "ui_root", go_home),
        site.open_page(["GET"], "/ui", "ui", go_home),
        site.page("/ui/{rest:path}", "ui_nowhere", not_found),
    ]
