"""Where a redirect leads, and what may go along."""

from __future__ import annotations

from typing import Final

import httpx2

from coatcheck.products.scrape import outcomes

REDIRECTS_MAX: Final = 5

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_FOR_ONE_SITE: Final = frozenset({"authorization", "cookie"})


def next_page(page: str, response: httpx2.Response) -> str | None:
    """The URL that an answer sends us on to; None if it is an end. Raises FailJob."""
    location = response.headers.get("location", "")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        return str(httpx2.URL(page).join(location).copy_with(fragment=None))
    except (httpx2.InvalidURL, ValueError) as error:
        raise outcomes.redirect_invalid() from error


def headers_for(following: str, page: str, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of the headers for ``page`` goes to where it led: no credentials to another site."""
    if _origin(following) == _origin(page):
        return headers
    return [(name, value) for name, value in headers if name not in _FOR_ONE_SITE]


def _origin(url: str) -> tuple[str, str, int | None]:
    read = httpx2.URL(url)
    return read.scheme, read.host, read.port
