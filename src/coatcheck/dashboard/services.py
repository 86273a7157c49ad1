"""The pages of services: the list, and the versions and endpoints of one."""

from __future__ import annotations

from typing import Any, Final

from coatcheck.dashboard import paths
from coatcheck.dashboard.site import Site, Visit
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/services"
ONE: Final = "/ui/services/{ws}/{service}"
_API: Final = "/api/v1/orgs/{org}/services"
_SERVICE: Final = "/api/v1/orgs/{org}/workspaces/{ws}/hosted-services/{service}"
_PAGE_ROWS: Final = 50
_PAGE_ENDPOINTS: Final = 100
"""Endpoints on one page: rendering several hundred would take too long."""


def routes(site: Site) -> list[Route]:
    return [site.page(PATH, "ui_services", _list), site.page(ONE, "ui_service", _show)]


async def _list(visit: Visit) -> Response | StreamResponse:
    cursor = visit.query.get("cursor")
    page = await visit.api.get(
        paths.to(_API, org=visit.org), {"cursor": cursor or None, "limit": _PAGE_ROWS}
    )
    return visit.page(
        "services.html",
        services=page["items"],
        next_page=page["next"] and paths.with_query(PATH, {"cursor": page["next"]}),
        first_page=PATH if cursor else None,
    )


async def _show(visit: Visit) -> Response | StreamResponse:
    names = {name: visit.params[name] for name in ("ws", "service")}
    service = await visit.api.get(paths.to(_SERVICE, org=visit.org, **names))
    here = paths.to(ONE, **names)
    first = _first(visit.query.get("from"))
    rows = _endpoints(service)
    more = first + _PAGE_ENDPOINTS < len(rows)
    return visit.page(
        "service.html",
        service=service,
        rows=rows[first : first + _PAGE_ENDPOINTS],
        endpoint_count=len(rows),
        next_page=paths.with_query(here, {"from": str(first + _PAGE_ENDPOINTS)}) if more else None,
        first_page=here if first else None,
    )


def _endpoints(service: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Each endpoint with its version, the latest version first."""
    versions = service["definition"]["versions"]
    return [
        (number, endpoint)
        for number in sorted(map(int, versions), reverse=True)
        for endpoint in versions[str(number)]["endpoints"]
    ]


def _first(given: str | None) -> int:
    """The number of endpoints before this page; 0 if ``given`` is not a number."""
    return int(given) if given and given.isascii() and given.isdigit() and len(given) < 10 else 0
