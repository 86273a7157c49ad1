"""The webhook pages: endpoints, their secrets and deliveries, and the actions on them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from coatcheck.dashboard import paths
from coatcheck.dashboard.rendering import counted
from coatcheck.dashboard.session import FlashMessage
from coatcheck.dashboard.site import Handler, Site, Visit
from coatcheck.domain.webhooks import EVENTS, MANY_EVENTS, DeliveryStatus
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/webhooks"
ENDPOINT: Final = f"{PATH}/endpoints/{{id}}"
API: Final = "/api/v1/orgs/{org}/webhooks"
_PAGE_ROWS: Final = 50
_REPLAY_ORDERS_MAX: Final = 20
_REPLAY_HOURS: Final = {"1": "the last hour", "24": "the last 24 hours", "168": "the last 7 days"}
EVENT_WORDS: Final = (*MANY_EVENTS, *sorted(EVENTS))
STATUSES: Final = tuple(status.value for status in DeliveryStatus)


def routes(site: Site) -> list[Route]:
    return [
        site.page(PATH, "ui_webhooks", _show),
        site.action(PATH, "ui_create_webhook", _create),
        site.action(
            f"{PATH}/replay", "ui_replay_webhooks", _replay_span, asks="Resend these deliveries?"
        ),
        site.action(
            f"{PATH}/deliveries/{{id}}/replay",
            "ui_replay_delivery",
            _replay,
            asks="Resend this delivery?",
        ),
        site.page(ENDPOINT, "ui_webhook", _show_endpoint),
        site.action(ENDPOINT, "ui_change_webhook", _change),
        site.action(f"{ENDPOINT}/pause", "ui_pause_webhook", _steer("pause", "Endpoint paused.")),
        site.action(
            f"{ENDPOINT}/resume", "ui_resume_webhook", _steer("resume", "Endpoint resumed.")
        ),
        site.action(f"{ENDPOINT}/test", "ui_test_webhook", _steer("test", "Test event queued.")),
        site.action(
            f"{ENDPOINT}/rotate",
            "ui_rotate_webhook",
            _rotate,
            asks="Rotate the secret? The current one stays valid for 24 hours.",
        ),
        site.action(f"{ENDPOINT}/secret", "ui_webhook_secret", _show_secret),
        site.action(
            f"{ENDPOINT}/delete", "ui_delete_webhook", _delete, asks="Delete this endpoint?"
        ),
    ]


async def _show(visit: Visit) -> Response | StreamResponse:
    base = paths.to(API, org=visit.org)
    chosen = {name: visit.query.get(name) for name in ("status", "job_id")}
    shown = await _deliveries(visit, f"{base}/deliveries", PATH, chosen)
    if visit.by_htmx:
        return visit.fragment("webhook_deliveries.html", **shown)
    return visit.page(
        "webhooks.html",
        **shown,
        endpoints=(await visit.api.get(f"{base}/endpoints"))["items"],
        events=EVENT_WORDS,
        spans=_REPLAY_HOURS,
    )


async def _show_endpoint(visit: Visit) -> Response | StreamResponse:
    base = _api_of(visit)
    here = _page_of(visit)
    chosen = {name: visit.query.get(name) for name in ("status", "job_id")}
    shown = await _deliveries(visit, f"{base}/deliveries", here, chosen)
    if visit.by_htmx:
        return visit.fragment("webhook_deliveries.html", **shown)
    return visit.page(
        "webhook.html", **shown, endpoint=await visit.api.get(base), events=EVENT_WORDS, secret=None
    )


async def _deliveries(visit: Visit, api: str, page: str, chosen: dict[str, str]) -> dict[str, Any]:
    cursor = visit.query.get("cursor")
    query = {name: value or None for name, value in chosen.items()}
    found = await visit.api.get(api, {**query, "cursor": cursor or None, "limit": _PAGE_ROWS})
    return {
        "deliveries": found["items"],
        "chosen": chosen,
        "statuses": STATUSES,
        "page_url": page,
        "this_page": paths.with_query(page, {**chosen, "cursor": cursor}),
        "next_page": found["next"] and paths.with_query(page, {**chosen, "cursor": found["next"]}),
        "first_page": paths.with_query(page, chosen) if cursor else None,
    }


async def _create(visit: Visit) -> Response | StreamResponse:
    form = visit.form
    made = await visit.api.post(
        f"{paths.to(API, org=visit.org)}/endpoints",
        {
            "url": form.get("url"),
            "events": form.all("events") or None,
            "description": form.get("description"),
        },
    )
    return visit.redirect(paths.to(ENDPOINT, id=made["id"]), FlashMessage("Endpoint registered."))


async def _change(visit: Visit) -> Response | StreamResponse:
    form = visit.form
    changes: dict[str, Any] = {
        "description": form.get("description"),
        "events": form.all("events") or ["*"],
    }
    if form.get("url"):
        changes["url"] = form.get("url")
    await visit.api.patch(_api_of(visit), changes)
    return visit.redirect(_page_of(visit), FlashMessage("Endpoint updated."))


def _steer(verb: str, message: str) -> Handler:
    async def steer(visit: Visit) -> Response | StreamResponse:
        await visit.api.post(f"{_api_of(visit)}/{verb}")
        return visit.redirect(_page_of(visit), FlashMessage(message))

    return steer


async def _rotate(visit: Visit) -> Response | StreamResponse:
    """Rotate the secret that the visitor saw once, even if the form is sent twice."""
    generation = visit.form.get("generation")
    order = {"generation": int(generation)} if re.fullmatch(r"[0-9]{1,9}", generation) else None
    await visit.api.post(f"{_api_of(visit)}/secret/rotate", order)
    return visit.redirect(
        _page_of(visit), FlashMessage("Secret rotated. The previous one stays valid for 24 hours.")
    )


async def _show_secret(visit: Visit) -> Response | StreamResponse:
    """A form and not a link, so that no browser history or prefetch contains the secret."""
    base = _api_of(visit)
    secret = await visit.api.get(f"{base}/secret")
    shown = await _deliveries(
        visit, f"{base}/deliveries", _page_of(visit), {"status": "", "job_id": ""}
    )
    return visit.page(
        "webhook.html",
        **shown,
        endpoint=await visit.api.get(base),
        events=EVENT_WORDS,
        secret=secret,
    )


async def _delete(visit: Visit) -> Response | StreamResponse:
    await visit.api.delete(_api_of(visit))
    return visit.redirect(PATH, FlashMessage("Endpoint deleted."))


async def _replay(visit: Visit) -> Response | StreamResponse:
    delivery = paths.to("/deliveries/{id}/replay", id=visit.params["id"])
    await visit.api.post(f"{paths.to(API, org=visit.org)}{delivery}")
    back = paths.own_page(visit.form.get("back"))
    return visit.redirect(
        PATH if back == paths.HOME else back, FlashMessage("Delivery queued again.")
    )


async def _replay_span(visit: Visit) -> Response | StreamResponse:
    """Resend the failed deliveries of a period, to all endpoints."""
    hours = visit.form.get("hours")
    since = datetime.now(UTC) - timedelta(hours=int(hours if hours in _REPLAY_HOURS else "1"))
    order: dict[str, Any] = {"since": since.isoformat()}
    count = 0
    for _ in range(_REPLAY_ORDERS_MAX):
        done = await visit.api.post(f"{paths.to(API, org=visit.org)}/replay", order)
        count += done["replayed"]
        if done["next"] is None:
            return visit.redirect(
                PATH, FlashMessage(f"Resending {counted(count, 'delivery', 'deliveries')}.")
            )
        order["cursor"] = done["next"]
    message = (
        f"Resending {counted(count, 'delivery', 'deliveries')}. "
        "Resend the rest with: coatcheck webhooks replay"
    )
    return visit.redirect(PATH, FlashMessage(message, "warning"))


def _api_of(visit: Visit) -> str:
    return paths.to(f"{API}/endpoints/{{id}}", org=visit.org, id=visit.params["id"])


def _page_of(visit: Visit) -> str:
    return paths.to(ENDPOINT, id=visit.params["id"])
