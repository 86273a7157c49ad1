"""What a caller prefers (RFC 7240): to wait, not to wait, and whether to be strict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.http.request import Call

WAIT_SECONDS_MAX: Final = 60.0
_PREFER: Final = b"prefer"
_SECONDS: Final = re.compile(r"[0-9]{1,400}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Preferences:
    """``wait`` is None if nothing was said of it; ``applied`` is what to echo."""

    wait: float | None = None
    respond_async: bool = False
    strict: bool = False
    applied: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        if not self.applied:
            return []
        return [(b"preference-applied", ", ".join(self.applied).encode("latin-1"))]


NONE: Final = Preferences()


def read_preferences(call: Call, *, in_query: bool = True) -> Preferences:
    """From the ``Prefer`` headers and the query's ``wait``, which goes first.

    A preference that is not understood is no error, by its specification; a query field is.
    ``in_query`` False: the query is not ours to read.
    """
    in_query = in_query and bool(call.scope["query_string"]) and "wait" in call.query
    if _PREFER not in call.headers and not in_query:
        return NONE
    wait = _seconds(call.query["wait"]) if in_query else None
    respond_async = strict = False
    applied: list[str] = []
    for name, value in _preferences(call).items():
        if name == "wait" and not in_query and _SECONDS.fullmatch(value):
            wait = min(float(value), WAIT_SECONDS_MAX)
            applied.append(f"wait={wait:g}")
        elif name == "respond-async":
            respond_async = True
            applied.append("respond-async")
        elif name == "handling" and value in ("strict", "lenient"):
            strict = value == "strict"
            applied.append(f"handling={value}")
    return Preferences(wait, respond_async, strict, tuple(applied))


def _preferences(call: Call) -> dict[str, str]:
    """By name, in their order. Of one that comes twice the first counts."""
    lines = [value.decode("latin-1") for name, value in call.scope["headers"] if name == _PREFER]
    preferences: dict[str, str] = {}
    for part in ",".join(lines).split(","):
        name, _, value = part.partition(";")[0].partition("=")
        preferences.setdefault(name.strip().lower(), value.strip().strip('"').lower())
    return preferences


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise InvalidParameter("wait", f"must be a number of seconds, at most {WAIT_SECONDS_MAX:g}")
    return min(float(text), WAIT_SECONDS_MAX)
