"""Content-Disposition headers (RFC 6266): every download is an attachment, whatever its type."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

_FILE_NAME_CHARACTERS_MAX: Final = 255
_PLAIN: Final = frozenset(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ !#$&()+,-.=@[]^_`{}~"
)

_EXTENSIONS: Final = {
    "application/gzip": ".gz",
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/xml": ".xml",
    "application/zip": ".zip",
    "audio/aac": ".aac",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/wave": ".wav",
    "audio/webm": ".weba",
    "audio/x-wav": ".wav",
    "image/avif": ".avif",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
    "model/gltf-binary": ".glb",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/plain": ".txt",
    "video/mp4": ".mp4",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
}
"""The usual types of results. Python's own table depends on the machine's files."""


def with_extension(name: str, media_type: str | None) -> str:
    """The name to download a file under, with an extension that matches its type.

    A job's name for a file may have none, such as ``remote-result``."""
    if "." in name:
        return name
    plain = (media_type or "").partition(";")[0].strip().lower()
    return name + _EXTENSIONS.get(plain, "")


def attachment(file_name: str | None) -> str:
    """A Content-Disposition header value: always ASCII, with nothing that could end the header.

    Slashes in the name are replaced: it names a file, never a path.
    """
    if not file_name:
        return "attachment"
    name = file_name[:_FILE_NAME_CHARACTERS_MAX].replace("/", "_").replace("\\", "_")
    plain = "".join(letter if letter in _PLAIN else "_" for letter in name)
    if plain == name:
        return f'attachment; filename="{plain}"'
    encoded = quote(name.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
