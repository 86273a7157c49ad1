"""The list of the organisation's batches, newest first."""

from __future__ import annotations

from typing import Final

from coatcheck.dashboard import paths
from coatcheck.dashboard.site import Site
from coatcheck.dashboard.visit import Visit
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/batches"
API: Final = "/v1/jobs"
_PAGE_ROWS: Final = 50


def routes(site: Site) -> list[Route]:
    return [site.page(PATH, "ui_batches", _show)]


async def _show(visit: Visit) -> Response | StreamResponse:
    if is_other_org(visit):
        return visit.page("batches_other_org.html")
    cursor = visit.query.get("cursor")
    page = await visit.api.get(API, {"cursor": cursor or None, "limit": _PAGE_ROWS})
    shown = {
        "batches": page["items"],
        "this_page": paths.with_query(PATH, {"cursor": cursor}),
        "next_page": page["next"] and paths.with_query(PATH, {"cursor": page["next"]}),
        "first_page": PATH if cursor else None,
    }
    if visit.by_htmx:
        return visit.fragment("batches_rows.html", **shown)
    return visit.page("batches.html", **shown)


def is_other_org(visit: Visit) -> bool:
    """Whether the page shows another organisation. The batch API serves only the caller's own."""
    return visit.org != visit.session.home_org
