"""Builds the payload for a remote, and picks the result from its output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from coatcheck.encoding import encode
from coatcheck.remotes.caller import garbage
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
from coatcheck.remotes.protocol import RemoteFailure, RemoteRefused, RemoteResult, SpawnRequest

ID_CHARACTERS_MAX: Final = 256
_PATH_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._~-]*")
"""Characters that need no encoding in a URL's path."""


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input fields in which the function expects the token or the callback URL, if any."""

    token: str | None = None
    callback_url: str | None = None

    def of(self, request: SpawnRequest) -> dict[str, str]:
        marks = {}
        if self.token is not None:
            marks[self.token] = request.token
        if self.callback_url is not None and request.callback_url is not None:
            marks[self.callback_url] = request.callback_url
        return marks


def marked(body: bytes, marks: Mapping[str, str]) -> msgspec.Raw:
    """``body`` with ``marks`` added, which override its fields. Other values stay unchanged."""
    try:
        if not marks:
            msgspec.json.decode(body)  # it is embedded in other JSON
            return msgspec.Raw(body)
        fields: dict[str, Any] = dict(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    except msgspec.ValidationError as error:
        raise _unfit("The input must be a JSON object, because fields are added to it.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unfit("The input is not JSON.") from error
    return msgspec.Raw(msgspec.json.encode({**fields, **marks}))


def check_id(remote_id: str, *, in_path: bool = True) -> str:
    """Check an id that a remote returned. Raises RemoteFaulty."""
    if not 1 <= len(remote_id) <= ID_CHARACTERS_MAX:
        raise garbage()
    if in_path and _PATH_ID.fullmatch(remote_id) is None:
        raise garbage()
    if not (remote_id.isascii() and remote_id.isprintable()):
        raise garbage()
    return remote_id


def _unfit(message: str) -> RemoteRefused:
    return RemoteRefused(message, code=RemoteFailure.INPUT_INVALID)


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
        code=RemoteFailure.RESULT_MISSING,
    )
