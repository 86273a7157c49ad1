"""The body of a spawn: the customer's JSON unchanged, plus the fields that we add."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coatcheck.remotes.caller import garbage
from coatcheck.remotes.errors import RemoteRefused
from coatcheck.remotes.protocol import SpawnRequest

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
    return RemoteRefused(message, code="remote_input_invalid")
