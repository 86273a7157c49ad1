"""Parses COATCHECK_SCRAPE_GATEWAY: the proxy or URL template that pages are fetched through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import quote, urlsplit

from coatcheck.settings.parsers import SettingRefused, non_empty

TARGET: Final = "{url}"
"""The placeholder for the page's URL in a template."""


@dataclass(frozen=True, slots=True)
class ScrapeGateway:
    """No gateway (``direct``), an HTTP proxy, or a URL template.

    ``url`` may contain credentials, so it is not shown.
    """

    kind: Literal["direct", "proxy", "template"]
    url: str = field(default="", repr=False)

    def address_of(self, page: str) -> str:
        """The URL to request for ``page``: itself, unless the gateway is a template."""
        if self.kind != "template":
            return page
        return self.url.replace(TARGET, quote(page, safe=""))


def parse_gateway(text: str) -> ScrapeGateway:
    """Parse the setting; empty text means no gateway."""
    if not text:
        return ScrapeGateway("direct")
    return _template(text) if "{" in text or "}" in text else _proxy(text)


def _template(text: str) -> ScrapeGateway:
    before, target, after = text.partition(TARGET)
    if not target or "{" in before + after or "}" in before + after:
        raise SettingRefused("braces are allowed only in one {url}")
    try:
        parts = urlsplit(non_empty(text))
        _ = parts.port  # raises ValueError if it is out of range
    except ValueError:
        raise SettingRefused from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise SettingRefused
    if parts.username is not None:
        raise SettingRefused("only a proxy may have user:password@")
    if TARGET in parts.netloc:
        raise SettingRefused("{url} must be in the path or the query")
    return ScrapeGateway("template", text)


def _proxy(text: str) -> ScrapeGateway:
    try:
        parts = urlsplit(non_empty(text))
        port = parts.port
    except ValueError:
        raise SettingRefused from None
    if parts.scheme != "http" or not parts.hostname or port is None:
        raise SettingRefused
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise SettingRefused("a proxy has no path; a template contains {url}")
    return ScrapeGateway("proxy", text.rstrip("/"))
