"""Reads whom a caller wants told of a job's end: the header ``X-Webhook-Url``."""

from __future__ import annotations

from typing import Final

from coatcheck.control.call import Call
from coatcheck.control.operations import Parameter
from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard

_HEADER: Final = "X-Webhook-Url"
WEBHOOK_HEADER: Final = _HEADER.lower().encode()


async def read_webhook_url(call: Call, guard: Guard) -> str | None:
    """The URL, if there is one. Raises UrlForbidden unless it may be called as things are now;
    whoever posts to it looks again."""
    url = call.header(WEBHOOK_HEADER)
    if url is None:
        return None
    try:
        await guard.check_url(url)
    except UrlForbidden as error:
        raise UrlForbidden(f"{_HEADER}: {error}") from error
    return url


WEBHOOK_PARAMETERS: Final = (
    Parameter(
        _HEADER,
        "header",
        "Is told of the job's end by a signed POST. With a known idempotency key, what came with "
        "the first submission stands.",
        {"type": "string", "format": "uri", "maxLength": 2048},
    ),
)
