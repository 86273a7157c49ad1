"""The routes of all pages of the dashboard."""

from __future__ import annotations

from http import HTTPStatus

from coatcheck.dashboard import (
    assets,
    batch_page,
    batches,
    job_files,
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
from coatcheck.http.asgi import ASGIApp
from coatcheck.http.context import Parts
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply
from coatcheck.http.routing import Operation


def operations(parts: Parts, api: ASGIApp) -> list[Operation]:
    """The dashboard's routes; ``api`` is the ASGI application of the public API."""
    site = Site(parts.settings, parts.draining, api)
    return [
        assets.operation(),
        *signing_in.operations(site),
        *overview.operations(site),
        *jobs.operations(site),
        *job_page.operations(site),
        *job_files.operations(site),
        *batches.operations(site),
        *batch_page.operations(site),
        *webhooks.operations(site),
        *services.operations(site),
        *keys.operations(site),
        *usage.operations(site),
        *_entry_points(site),
    ]


def _entry_points(site: Site) -> list[Operation]:
    """Redirects to the first page, and the 404 page."""

    async def go_home(_: Call) -> Reply | StreamReply:
        return Reply(HTTPStatus.SEE_OTHER, b"", [(b"location", paths.HOME.encode())])

    async def not_found(_: Visit) -> Reply | StreamReply:
        raise NotFound

    return [
        site.open_page(["GET"], "/", "ui_root", go_home),
        site.open_page(["GET"], "/ui", "ui", go_home),
        site.page("/ui/{rest:path}", "ui_nowhere", not_found),
    ]
