"""Cleans texts from remotes for error messages: short, printable, without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from coatcheck.telemetry.redaction import REDACTED, redact

TEXT_CHARACTERS_MAX: Final = 500
_SECRET_CHARACTERS_MIN: Final = 4
"""Shorter secrets would match parts of ordinary words."""
_SAID_IN: Final = ("detail", "error", "message", "msg", "title")
_DEPTH_MAX: Final = 3


def shown(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without ``secrets``, on one line, cut to the length of an error message."""
    text = without_secrets(text, secrets)
    # Cut after removing secrets: half a secret would not be found.
    one_line = " ".join(redact(text).split())
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in one_line)
    if len(printable) <= TEXT_CHARACTERS_MAX:
        return printable
    return printable[: TEXT_CHARACTERS_MAX - 1] + "\N{HORIZONTAL ELLIPSIS}"


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """``text`` without ``secrets``, however a URL or JSON would encode them."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SECRET_CHARACTERS_MIN:
            in_json = msgspec.json.encode(secret).decode()[1:-1]
            for encoded in (secret, quote(secret, safe=""), in_json, in_json.replace("/", "\\/")):
                text = text.replace(encoded, REDACTED)
    return text


def said(body: bytes) -> str:
    """The message in a JSON error body; empty if there is none or it is not JSON."""
    try:
        return sentence(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def sentence(value: Any, depth: int = 0) -> str:
    """The human-readable text in a JSON value: the value itself, or one of its message fields."""
    match value:
        case str():
            return value
        case dict() if depth < _DEPTH_MAX:
            found = (sentence(value.get(name), depth + 1) for name in _SAID_IN)
            return next(filter(None, found), "")
        case [first, *_] if depth < _DEPTH_MAX:
            return sentence(first, depth + 1)
        case _:
            return ""
