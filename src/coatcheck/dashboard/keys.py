"""The API keys page: lists, creates and revokes keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from coatcheck.dashboard import paths
from coatcheck.dashboard.rendering import read_time
from coatcheck.dashboard.session import FlashMessage
from coatcheck.dashboard.site import Site, Visit
from coatcheck.domain.tenants import Scope
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/keys"
_API: Final = "/api/v1/orgs/{org}/api-keys"
_PAGE_ROWS: Final = 50
_DAY: Final = 86_400
LIVES: Final = {
    "": "Never",
    "7": "In 7 days",
    "30": "In 30 days",
    "90": "In 90 days",
    "365": "In a year",
}


def routes(site: Site) -> list[Route]:
    return [
        site.page(PATH, "ui_keys", _show),
        site.action(PATH, "ui_create_key", _create),
        site.action(
            f"{PATH}/{{id}}/revoke",
            "ui_revoke_key",
            _revoke,
            asks="Revoke this key? It cannot be used again.",
        ),
    ]


async def _show(visit: Visit) -> Response | StreamResponse:
    cursor = visit.query.get("cursor")
    page = await visit.api.get(
        paths.to(_API, org=visit.org), {"cursor": cursor or None, "limit": _PAGE_ROWS}
    )
    return visit.page(
        "keys.html",
        keys=[{**key, "status": _status(key)} for key in page["items"]],
        next_page=page["next"] and paths.with_query(PATH, {"cursor": page["next"]}),
        first_page=PATH if cursor else None,
        scopes=[scope.value for scope in Scope if visit.session.may(scope.value)],
        lives=LIVES,
    )


def _status(key: Mapping[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    expires = key["expires_at"]
    is_over = expires is not None and read_time(expires) <= datetime.now(UTC)
    return "expired" if is_over else "active"


async def _create(visit: Visit) -> Response | StreamResponse:
    """Only this response ever shows the key, and nothing stores it."""
    form = visit.form
    wanted: dict[str, Any] = {"name": form.get("name")}
    if form.get("user"):
        wanted["user"] = form.get("user")
    if form.all("scopes"):
        wanted["scopes"] = form.all("scopes")
    days = form.get("days")
    if days and days in LIVES:
        wanted["expires_in_seconds"] = int(days) * _DAY
    made = await visit.api.post(paths.to(_API, org=visit.org), wanted)
    return visit.page("key_created.html", key=made)


async def _revoke(visit: Visit) -> Response | StreamResponse:
    await visit.api.delete(paths.to(f"{_API}/{{id}}", org=visit.org, id=visit.params["id"]))
    return visit.redirect(PATH, FlashMessage("Key revoked."))
