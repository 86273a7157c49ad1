"""Reads whom a caller wants told of a job: ``X-Webhook-Url`` of its end, ``X-State-Webhook-Url`` of
every change of its state."""

from __future__ import annotations

from typing import Final, NamedTuple

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.http.request import Call
from coatcheck.http.routing import Parameter

_END: Final = "X-Webhook-Url"
_STATES: Final = "X-State-Webhook-Url"
_URL: Final = {"type": "string", "format": "uri", "maxLength": 2048}


class WebhookUrls(NamedTuple):
    """Who is told of a job, as a submission names them."""

    webhook_url: str | None
    state_webhook_url: str | None


def names_webhooks(call: Call) -> bool:
    """Whether anybody is to be told."""
    return any(call.header(name.lower().encode()) is not None for name in (_END, _STATES))


async def read_webhook_urls(call: Call, guard: Guard, org: str) -> WebhookUrls:
    """The URLs, as far as there are any. Raises UrlForbidden unless they may be called as things
    are now, LookUpRefused if that is not looked up now; whoever posts to them looks again."""
    return WebhookUrls(await _read(call, _END, guard, org), await _read(call, _STATES, guard, org))


async def _read(call: Call, header: str, guard: Guard, org: str) -> str | None:
    url = call.header(header.lower().encode())
    if url is not None:
        await check_webhook_url(header, url, guard, org)
    return url


async def check_webhook_url(name: str, url: str, guard: Guard, org: str) -> None:
    """Raises UrlForbidden, with the name under which the URL came, unless it may be called now."""
    try:
        await guard.check_url(url, org)
    except UrlForbidden as error:
        raise UrlForbidden(f"{name}: {error}") from error


WEBHOOK_PARAMETERS: Final = (
    Parameter(
        _END,
        "header",
        "Is told of the job's end by a signed POST. With a known idempotency key, what came with "
        "the first submission stands.",
        _URL,
    ),
    Parameter(
        _STATES,
        "header",
        "Is told of every change of the job's state, its end among them, by signed POSTs.",
        _URL,
    ),
)
