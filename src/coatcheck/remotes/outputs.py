"""Picks the one result to keep from a service's output, which may be any JSON.

Services answer with a URL, a list of URLs, an object that describes a file, base64, or plain data.
An obvious single file is downloaded; ``path`` selects a part; everything else stays JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from coatcheck.encoding import encode
from coatcheck.remotes.errors import RemoteRefused
from coatcheck.remotes.files import (
    BINARY,
    DURATION,
    JSON,
    Files,
    from_base64,
    from_data_url,
    held,
    is_data_url,
    is_url,
)
from coatcheck.remotes.protocol import RemoteResult

COMPUTE: Final = "compute_seconds"
Encoding = Literal["auto", "base64", "json"]
_TEXT: Final = "text/plain; charset=utf-8"


class OutputChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of the output is the result, and how it is encoded.

    ``path``: field names and list indexes that lead to it, separated by dots.
    ``encoding``: ``auto`` downloads a URL and decodes a data URL; ``base64`` decodes; ``json``
    keeps it.
    """

    path: str | None = None
    encoding: Encoding = "auto"
    media_type: str | None = None


async def result_of(
    output: Any, choice: OutputChoice, files: Files, metadata: Mapping[str, float]
) -> RemoteResult:
    """The result that ``output`` contains or points to."""
    chosen = _at(output, choice.path)
    if choice.encoding == "json":
        return held(encode(chosen), choice.media_type or JSON, metadata)
    if choice.encoding == "base64":
        if not isinstance(chosen, str):
            raise _missing()
        return held(from_base64(chosen), choice.media_type or BINARY, metadata)
    match chosen:
        case str() as text if is_url(text):
            return await files.url(text, choice.media_type, metadata)
        case [str() as text] if is_url(text):
            return await files.url(text, choice.media_type, metadata)
        case str() as text if is_data_url(text):
            return from_data_url(text, choice.media_type, metadata)
        case {"url": str() as text} if is_url(text):
            return await files.url(
                text, choice.media_type or _named(chosen), {**metadata, **_duration(chosen)}
            )
        case {"url": str() as text} if is_data_url(text):
            return from_data_url(
                text, choice.media_type or _named(chosen), {**metadata, **_duration(chosen)}
            )
        case str() as text if choice.path is not None:
            return held(text.encode(), choice.media_type or _TEXT, metadata)
        case _:
            return held(encode(chosen), choice.media_type or JSON, metadata)


def seconds(value: float | None, unit_seconds: float = 1.0) -> dict[str, float]:
    """The compute time as metadata."""
    return {} if value is None or value < 0 else {COMPUTE: value * unit_seconds}


def _at(output: Any, path: str | None) -> Any:
    value = output
    for name in [] if path is None else path.split("."):
        match value:
            case dict() if name in value:
                value = value[name]
            case list() if name.isascii() and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            case _:
                raise _missing()
    return value


def _named(file: Mapping[str, Any]) -> str | None:
    kind = file.get("content_type")
    return kind if isinstance(kind, str) and "/" in kind and kind.isprintable() else None


def _duration(file: Mapping[str, Any]) -> dict[str, float]:
    value = file.get("duration")
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return {DURATION: float(value)}
    return {}


def _missing() -> RemoteRefused:
    return RemoteRefused(
        "The remote's output has no result at the target's `output.path`.",
        code="remote_result_missing",
    )
