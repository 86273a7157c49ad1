"""The images of an answer as files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_UNKNOWN: Final = ("application/octet-stream", "bin")


@dataclass(frozen=True, slots=True)
class Image:
    """An image under the name that it is attached by."""

    name: str
    media_type: str
    data: bytes


def read_images(encoded: Iterable[str]) -> Iterator[Image]:
    """``image-1.png`` and so on. What is no base64 stays in the answer only."""
    for number, text in enumerate(encoded, start=1):
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
        media_type, ending = _kind(data)
        yield Image(f"image-{number}.{ending}", media_type, data)


def is_image(beginning: bytes) -> bool:
    """Whether the first bytes are those of an image that is known here."""
    return _kind(beginning) is not _UNKNOWN


def _kind(data: bytes) -> tuple[str, str]:
    """The media type and the file name's ending, by the first bytes."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", "jpg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp", "webp"
    return _UNKNOWN
