"""What a remote says, made fit for errors that people read: short, printable, without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from coatcheck.telemetry.redaction import REDACTED, redact

TEXT_CHARACTERS_MAX: Final = 500
_SECRET_CHARACTERS_MIN: Final = 4
"""A shorter one is in every other word."""
_SAID_IN: Final = ("detail", "error", "message", "msg", "title")
_DEPTH_MAX: Final = 3


def shown(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without what is in ``secrets``, on one line, cut to what an error may hold."""
    text = without_secrets(text, secrets)
    # Only what was searched for secrets is cut: half a secret would not be found.
    one_line = " ".join(redact(text).split())
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in one_line)
    if len(printable) <= TEXT_CHARACTERS_MAX:
        return printable
    return printable[: TEXT_CHARACTERS_MAX - 1] + "\N{HORIZONTAL ELLIPSIS}"


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """``text`` without what is in ``secrets``, however a URL or JSON would spell it."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SECRET_CHARACTERS_MIN:
            in_json = msgspec.json.encode(secret).decode()[1:-1]
            for spelt in (secret, quote(secret, safe=""), in_json, in_json.replace("/", "\\/")):
                text = text.replace(spelt, REDACTED)
    return text


def said(body: bytes) -> str:
    """The sentence in an error's JSON body; nothing if there is none, or it is no JSON."""
    try:
        return sentence(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def sentence(value: Any, depth: int = 0) -> str:
    """What a JSON value says to people: itself, or what its telling fields hold."""
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
