"""Through what pages are fetched: COATCHECK_SCRAPE_GATEWAY."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import quote, urlsplit

from coatcheck.settings.parsers import Refused, non_empty

TARGET: Final = "{url}"
"""Where a template takes the page's URL."""


@dataclass(frozen=True, slots=True)
class ScrapeGateway:
    """Nothing (``direct``), an HTTP proxy, or a URL in which the page's own is put.

    ``url`` may hold credentials, so it is not shown.
    """

    kind: Literal["direct", "proxy", "template"]
    url: str = field(default="", repr=False)

    def address_of(self, page: str) -> str:
        """What to ask for to get ``page``: itself, unless the gateway is a template."""
        if self.kind != "template":
            return page
        return self.url.replace(TARGET, quote(page, safe=""))


def parse_gateway(text: str) -> ScrapeGateway:
    """Read the setting; nothing at all stands for no gateway."""
    if not text:
        return ScrapeGateway("direct")
    return _template(text) if "{" in text or "}" in text else _proxy(text)


def _template(text: str) -> ScrapeGateway:
    before, target, after = text.partition(TARGET)
    if not target or "{" in before + after or "}" in before + after:
        raise Refused("braces may stand only in one {url}")
    try:
        parts = urlsplit(non_empty(text))
        _ = parts.port  # read only now, and out of range perhaps
    except ValueError:
        raise Refused from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise Refused
    if parts.username is not None:
        raise Refused("only a proxy takes user:password@")
    if TARGET in parts.netloc:
        raise Refused("{url} belongs into the path or the query")
    return ScrapeGateway("template", text)


def _proxy(text: str) -> ScrapeGateway:
    try:
        parts = urlsplit(non_empty(text))
        port = parts.port
    except ValueError:
        raise Refused from None
    if parts.scheme != "http" or not parts.hostname or port is None:
        raise Refused
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise Refused("a proxy has no path; a template has {url} in it")
    return ScrapeGateway("proxy", text.rstrip("/"))
