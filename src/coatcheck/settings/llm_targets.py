"""Parses the chat targets: COATCHECK_LLM_URL for one, COATCHECK_LLM_TARGETS for several."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from coatcheck.settings.parsers import SettingRefused, http_url

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
