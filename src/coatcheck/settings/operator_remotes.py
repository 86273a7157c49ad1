"""Parses COATCHECK_REMOTES: the operator's own remotes, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.settings.parsers import Refused
from coatcheck.settings.speech_remote import parse_remote

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def parse_remotes(text: str) -> Mapping[str, OperatorRemote]:
    """Parse the JSON object; empty text has none. Errors quote no secret."""
    remotes: dict[str, OperatorRemote] = {}
    try:
        written = _decode(text or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(str(error)) from None
    for name, each in written.items():
        if _NAME.fullmatch(name) is None:
            raise Refused(
                f"{name[:80]!r} is not a valid remote name: use letters, digits, '-' and '_'"
            )
        try:
            remote = parse_remote(bytes(each).decode())
        except Refused as error:
            raise Refused(f"{name}: {error}") from None
        assert remote is not None, "each value is non-empty JSON"
        remotes[name] = remote
    return remotes
