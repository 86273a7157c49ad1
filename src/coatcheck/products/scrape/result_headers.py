"""What of an answer's headers the result shows."""

from __future__ import annotations

from typing import Final

import httpx2

_SHOWN: Final = frozenset(
    {
        "age",
        "cache-control",
        "content-disposition",
        "content-language",
        "content-type",
        "date",
        "etag",
        "expires",
        "last-modified",
        "link",
        "location",
        "server",
        "vary",
        "x-robots-tag",
    }
)
_VALUE_CHARACTERS_MAX: Final = 1_000
_MEDIA_TYPE_CHARACTERS_MAX: Final = 255
_UNKNOWN: Final = "application/octet-stream"


def shown_headers(response: httpx2.Response) -> dict[str, str]:
    """A chosen few, by their names in lower case, none longer than it may be."""
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers.raw:
        name = raw_name.decode("latin-1").lower()
        if name in _SHOWN:
            value = raw_value.decode("latin-1")
            found[name] = f"{found[name]}, {value}" if name in found else value
    return {name: value[:_VALUE_CHARACTERS_MAX] for name, value in found.items() if value}


def media_type(content_type: str | None) -> str:
    """The content type, if it is one that an artifact can have."""
    found = content_type or ""
    plain = found.isascii() and found.isprintable() and "/" in found[1:-1]
    return found if plain and len(found) <= _MEDIA_TYPE_CHARACTERS_MAX else _UNKNOWN
