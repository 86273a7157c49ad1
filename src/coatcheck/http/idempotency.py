"""The idempotency key of a request: bare, or a quoted string of structured fields (RFC 9651)."""

from __future__ import annotations

from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.http.request import Call

_NAMES: Final = (b"idempotency-key", b"x-idempotency-key")
_STRANGERS: Final = "\x1f"
_MADE: Final = "\x1e"
"""How keys begin that we have made of what a caller said: they tell a reader nothing."""


def read_idempotency_key(call: Call) -> str | None:
    """The key, or None. Both headers may come if they say the same."""
    keys = {_bare(call.headers[name]) for name in _NAMES if name in call.headers}
    if not keys:
        return None
    if len(keys) > 1:
        raise _wrong("Idempotency-Key and X-Idempotency-Key differ")
    key = keys.pop()
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise _wrong(f"must have 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters")
    if not key.isprintable():
        raise _wrong("must be printable text")
    return key


def of_strangers(key: str) -> str:
    """The key as it is stored for a caller without a credential of the organisation.

    Strangers have their keys to themselves: else they could learn of a member's job, or take the
    key that a member is about to use. No member can spell the mark: it is not printable.
    """
    if len(key) == IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise _wrong(f"must have less than {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters here")
    return _STRANGERS + key


def shown_key(stored: str | None) -> str | None:
    """The key as its caller spelt it; None if nobody did so."""
    if stored is None or stored.startswith(_MADE):
        return None
    return stored.removeprefix(_STRANGERS)


def _bare(raw: bytes) -> str:
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError as error:
        raise _wrong("must be text in ASCII or UTF-8") from error
    if not text.startswith('"'):
        return text
    if len(text) < 2 or not text.endswith('"'):
        raise _wrong("begins with a quote and does not end with one")
    return _unquoted(text[1:-1])


def _unquoted(inner: str) -> str:
    letters: list[str] = []
    escaped = False
    for letter in inner:
        if escaped:
            if letter not in '"\\':
                raise _wrong('has a backslash before something else than " or \\')
            letters.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == '"':
            raise _wrong("has a quote in its middle that no backslash stands before")
        else:
            letters.append(letter)
    if escaped:
        raise _wrong("ends with a lone backslash")
    return "".join(letters)


def _wrong(issue: str) -> InvalidParameter:
    return InvalidParameter("Idempotency-Key", issue, "header")
