"""The list of the organisation's jobs, with filters, search and bulk actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from coatcheck.dashboard import paths
from coatcheck.dashboard.rendering import between, counted
from coatcheck.dashboard.session import Fields, FlashMessage
from coatcheck.dashboard.site import Handler, Site
from coatcheck.dashboard.visit import Visit
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/jobs"
API: Final = "/api/v1/orgs/{org}/jobs"
_PAGE_ROWS: Final = 50
_BULK_MAX: Final = 1_000

SPANS: Final[Mapping[str, tuple[str, timedelta]]] = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
}
STATES: Final = ("live", "ended", *(state.value for state in State))
LANES: Final = tuple(lane.value for lane in Lane)

_SELECTING: Final = ("state", "lane", "surface", "service", "endpoint", "error_code")
"""The API's filters that both lists and bulk actions take."""
_LISTING: Final = (*_SELECTING, "owner", "q")
_NAMES: Final = (*_LISTING, "since")
_WORDS: Final = {"cancel": "Cancelled", "retry": "Retried"}


def routes(site: Site, products: Sequence[str]) -> list[Route]:
    async def show(visit: Visit) -> Response | StreamResponse:
        return await _show(visit, products)

    return [
        site.page(PATH, "ui_jobs", show),
        site.action(
            f"{PATH}/cancel", "ui_cancel_jobs", _bulk("cancel"), asks="Cancel the selected jobs?"
        ),
        site.action(
            f"{PATH}/retry", "ui_retry_jobs", _bulk("retry"), asks="Retry the selected jobs?"
        ),
    ]


async def _show(visit: Visit, products: Sequence[str]) -> Response | StreamResponse:
    filters = {name: visit.query.get(name) for name in _NAMES}
    cursor = visit.query.get("cursor")
    page = await visit.api.get(
        paths.to(API, org=visit.org),
        {
            **{name: filters[name] or None for name in _LISTING},
            "created_after": _created_after(filters["since"]),
            "cursor": cursor or None,
            "limit": _PAGE_ROWS,
        },
    )
    shown = {
        "jobs": page["items"],
        "between": between,
        "filters": filters,
        "is_filtered": any(filters.values()),
        "this_page": paths.with_query(PATH, {**filters, "cursor": cursor}),
        "next_page": page["next"] and paths.with_query(PATH, {**filters, "cursor": page["next"]}),
        "first_page": paths.with_query(PATH, filters) if cursor else None,
        "may_act": visit.session.may("submit"),
    }
    if visit.by_htmx:
        return visit.fragment("jobs_rows.html", **shown)
    return visit.page(
        "jobs.html",
        **shown,
        states=STATES,
        lanes=LANES,
        products=products,
        spans={key: label for key, (label, _) in SPANS.items()},
        cursor=cursor,
        may_choose_all=not (filters["q"] or filters["owner"]),
        bulk_max=_BULK_MAX,
    )


def _bulk(action: str) -> Handler:
    async def act(visit: Visit) -> Response | StreamResponse:
        form = visit.form
        back = paths.with_query(PATH, {name: form.get(name) for name in (*_NAMES, "cursor")})
        order = _order(action, form)
        if order is None:
            return visit.redirect(back, FlashMessage("No jobs selected.", "warning"))
        done = await visit.api.post(f"{paths.to(API, org=visit.org)}/bulk", order)
        return visit.redirect(back, _summary(action, done["items"], more=done["more"]))

    return act


def _order(action: str, form: Fields) -> dict[str, Any] | None:
    """The body of the bulk request; None if nothing was selected."""
    if form.get("everything") == "yes":
        chosen: dict[str, Any] = {name: form.get(name) for name in _SELECTING if form.get(name)}
        after = _created_after(form.get("since"))
        if after is not None:
            chosen["created_after"] = after
        return {"action": action, "filter": chosen, "limit": _BULK_MAX}
    ids = form.all("id")
    return {"action": action, "ids": ids} if ids else None


def _summary(action: str, items: Sequence[Mapping[str, Any]], *, more: bool) -> FlashMessage:
    """The result in a sentence or two: how many jobs changed, and why the others did not."""
    done = sum(item["ok"] for item in items)
    sentences = [f"{_WORDS[action]} {counted(done, 'job')}."]
    refused = Counter(item["code"] for item in items if not item["ok"])
    if refused:
        reasons = ", ".join(f"{code} ({count})" for code, count in refused.most_common(5))
        sentences.append(f"{counted(refused.total(), 'job')} unchanged: {reasons}.")
    if more:
        sentences.append("More jobs match: repeat the action for the rest.")
    kind = "done" if not refused and not more else "warning" if done else "error"
    return FlashMessage(" ".join(sentences), kind)  # type: ignore[arg-type]  # one of the three


def _created_after(since: str) -> str | None:
    if since not in SPANS:
        return None
    return (
        (datetime.now(UTC) - SPANS[since][1]).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
