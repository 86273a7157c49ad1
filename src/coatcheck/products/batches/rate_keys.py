"""What a task's rate is counted by: a field of its input, or the host of the URL in it."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec

_URL: Final = re.compile(r"https?://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^/?#:]*)", re.IGNORECASE)
_CHARACTERS_MAX: Final = 100


class RateKey:
    """Reads the key of tasks from the field at ``path``, whose names are parted by dots.

    >>> RateKey("page.url").of(b'{"page": {"url": "https://Example.org:8080/a"}}')
    'example.org'

    Of an http or https URL it is the host; of other text, the text. Where there is no text at the
    path it is empty. One of more than 100 characters is told by its SHA-256.
    """

    def __init__(self, path: str) -> None:
        names = path.split(".")
        self._depth = len(names)
        wanted: Any = Any
        for name in reversed(names):
            # Named so that any text will do for a field, and read by no other field than this.
            wanted = msgspec.defstruct(
                "Level", [("value", wanted, None)], rename={"value": name}, gc=False
            )
        self._decode = msgspec.json.Decoder(wanted).decode

    def of(self, given: bytes) -> str:
        """The key of a task, from its input."""
        try:
            value = self._decode(given)
        except msgspec.ValidationError:
            return ""  # no object where there should be one
        for _ in range(self._depth):
            if value is None:
                return ""
            value = value.value
        return _key(value) if isinstance(value, str) else ""


def _key(text: str) -> str:
    url = _URL.match(text)
    key = text if url is None else url[1].lower()
    if len(key) > _CHARACTERS_MAX:
        return hashlib.sha256(key.encode()).hexdigest()
    return key
