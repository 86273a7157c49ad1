"""The services that the organisation can call, their versions and endpoints."""

from __future__ import annotations

from typing import Final

from coatcheck.control.operations import Operation
from coatcheck.control.reply import Reply, StreamReply
from coatcheck.dashboard import paths
from coatcheck.dashboard.site import Site
from coatcheck.dashboard.visit import Visit

PATH: Final = "/ui/services"
_API: Final = "/api/v1/orgs/{org}/services"
_PAGE_ROWS: Final = 50


def operations(site: Site) -> list[Operation]:
    return [site.page(PATH, "ui_services", _show)]


async def _show(visit: Visit) -> Reply | StreamReply:
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
