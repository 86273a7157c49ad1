"""What a download is called (RFC 6266): always an attachment, whatever it holds."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

_FILE_NAME_CHARACTERS_MAX: Final = 255
_PLAIN: Final = frozenset(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ !#$&()+,-.=@[]^_`{}~"
)


def attachment(file_name: str | None) -> str:
    """A Content-Disposition. Only ASCII, whatever the name is, and nothing that could end it.

    A name's slashes are replaced: it names a file, never a place.
    """
    if not file_name:
        return "attachment"
    name = file_name[:_FILE_NAME_CHARACTERS_MAX].replace("/", "_").replace("\\", "_")
    plain = "".join(letter if letter in _PLAIN else "_" for letter in name)
    if plain == name:
        return f'attachment; filename="{plain}"'
    encoded = quote(name.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
