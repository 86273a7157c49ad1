"""Parses the servers that products call: chat targets (COATCHECK_LLM_URL for one,
COATCHECK_LLM_TARGETS for several), the gateway that pages are fetched through
(COATCHECK_SCRAPE_GATEWAY), and the speech remote (COATCHECK_SPEECH_REMOTE_URL, or
COATCHECK_SPEECH_REMOTE for any adapter)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.settings.parsers import SettingRefused, http_url, non_empty

ONLY_TARGET: Final = "default"
"""The name of the target that COATCHECK_LLM_URL defines."""

CONCURRENCY_MAX: Final = 1_000
_TARGETS_MAX: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class LlmTarget:
    """A server with Ollama's API: its base URL, and its maximum number of concurrent chats."""

    name: str
    url: str
    token: str = field(default="", repr=False)
    concurrency: int = 1


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A target in the setting's JSON."""

    name: str
    url: str
    token: str = ""
    concurrency: int = 1


def bearer_token(text: str) -> str:
    """A token that a header can carry: visible ASCII without spaces."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SettingRefused
    return text


def parse_targets(text: str) -> tuple[LlmTarget, ...]:
    """Parse the JSON list. Errors quote no URL and no token."""
    try:
        written = msgspec.json.decode(text.encode(), type=list[_Written])
    except msgspec.MsgspecError as error:
        raise SettingRefused(str(error)) from None
    if len(written) > _TARGETS_MAX:
        raise SettingRefused(f"there are more than {_TARGETS_MAX}")
    targets = tuple(_target(number, each) for number, each in enumerate(written, start=1))
    if len({target.name for target in targets}) < len(targets):
        raise SettingRefused("two of them have the same name")
    return targets


def _target(number: int, written: _Written) -> LlmTarget:
    if not _NAME.fullmatch(written.name):
        raise SettingRefused(
            f"the name of target {number} must have 1 to 63 letters, digits, '.', '_' and '-'"
        )
    try:
        url = http_url(written.url)
    except SettingRefused:
        raise SettingRefused(f"the url of target {number} is not valid") from None
    try:
        token = bearer_token(written.token) if written.token else ""
    except SettingRefused:
        raise SettingRefused(f"the token of target {number} cannot be sent in a header") from None
    if not 1 <= written.concurrency <= CONCURRENCY_MAX:
        raise SettingRefused(
            f"the concurrency of target {number} must be from 1 to {CONCURRENCY_MAX}"
        )
    return LlmTarget(written.name, url, token, written.concurrency)


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


_TOKEN: Final = "token"  # noqa: S105 - the name of a secret, not one
_KIND: Final = {"kind": "remote"}


class _WrittenRemote(msgspec.Struct, forbid_unknown_fields=True):
    """A remote in the setting's JSON."""

    target: dict[str, Any]
    secrets: dict[str, str] = {}


def over_http(url: str, token: str) -> OperatorRemote:
    """A server with submit-job, job-status, job-result and job-cancel below ``url``."""
    target: dict[str, Any] = _KIND | {"adapter": "http", "url": url}
    if not token:
        return OperatorRemote(target=target)
    return OperatorRemote(target=target | {"secret": _TOKEN}, secrets={_TOKEN: token})


def parse_remote(text: str) -> OperatorRemote | None:
    """Parse the JSON object; empty text means none. Errors quote no secret."""
    if not text:
        return None
    try:
        written = msgspec.json.decode(text.encode(), type=_WrittenRemote)
    except msgspec.MsgspecError as error:
        raise SettingRefused(str(error)) from None
    if not isinstance(written.target.get("adapter"), str):
        raise SettingRefused("its target has no adapter")
    for name, value in written.secrets.items():
        try:
            bearer_token(value)
        except SettingRefused:
            raise SettingRefused(f"its secret {name!r} cannot be sent in a header") from None
    return OperatorRemote(target=_KIND | written.target, secrets=written.secrets)
