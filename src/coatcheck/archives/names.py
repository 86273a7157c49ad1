"""Rules for the names of zip entries, alone and in relation to each other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import Final

from coatcheck.archives.model import ArchiveLimits, Reason, rejected
from coatcheck.domain.errors import ArchiveRejected

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_BIDI_CONTROLS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Control characters that make a name look like another one."""


def read_name(number: int, raw: bytes, limits: ArchiveLimits) -> str:
    """Decode and check the name of an entry; a directory's ends with a slash.

    Names must be UTF-8 even without the UTF-8 flag: Finder omits the flag and always writes UTF-8.
    Another encoding is refused, since we would have to guess which one it is.
    """
    if not raw:
        raise rejected(Reason.EMPTY_NAME, f"Entry {number} has no name.")
    if len(raw) > limits.path_bytes:
        raise rejected(
            Reason.PATH_TOO_LONG,
            f"Entry {number} has a name of {len(raw)} bytes; {limits.path_bytes} are allowed.",
        )
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise rejected(
            Reason.NAME_NOT_UTF8, f"Entry {number} has a name that is not UTF-8."
        ) from None
    _check_characters(number, name)
    _check_path(number, name, limits)
    return name


def _check_characters(number: int, name: str) -> None:
    if "\\" in name:
        raise rejected(Reason.BACKSLASH, f"Entry {number} has a backslash in its name.")
    if not name.isprintable() and any(map(_is_control, name)):
        raise rejected(
            Reason.CONTROL_CHARACTER, f"Entry {number} has a control character in its name."
        )


def _is_control(character: str) -> bool:
    # Cc: control characters; Zl, Zp: line and paragraph separators.
    return unicodedata.category(character) in {"Cc", "Zl", "Zp"} or character in _BIDI_CONTROLS


def _check_path(number: int, name: str, limits: ArchiveLimits) -> None:
    if name.startswith("/"):
        raise rejected(Reason.ABSOLUTE_PATH, f"Entry {number} has an absolute path.")
    if _DRIVE.match(name):
        raise rejected(Reason.DRIVE_PATH, f"Entry {number} has a path that begins with a drive.")
    parts = name.removesuffix("/").split("/")
    if ".." in parts or "." in parts:
        raise rejected(Reason.PATH_TRAVERSAL, f"Entry {number} has a dot segment in its path.")
    if "" in parts:
        raise rejected(Reason.EMPTY_NAME, f"Entry {number} has an empty segment in its path.")
    if len(parts) > limits.path_depth:
        raise rejected(
            Reason.PATH_TOO_DEEP,
            f"Entry {number} is {len(parts)} levels deep; {limits.path_depth} are allowed.",
        )


class NameCheck:
    """Checks names against each other as they come: no duplicates, and no file that is also a
    directory."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, number: int, name: str) -> None:
        key = name.removesuffix("/")
        same, other = self._files, self._folders
        if name.endswith("/"):
            same, other = other, same
        if key in same:
            raise rejected(Reason.DUPLICATE_NAME, f"Entry {number} has the name of another entry.")
        if key in other:
            raise _both(number)
        same.add(key)

    def finish(self) -> None:
        """Call this after the last name."""
        if not self._files.isdisjoint(_around_others(self._files | self._folders)):
            raise _both()


def _around_others(names: Collection[str]) -> Iterator[str]:
    """The names that are a parent folder of other names.

    Listing the parents of each name could give thirty times as many strings. In this sort order,
    the contents of a folder follow right after its name.
    """
    ordered = sorted(names, key=_with_lowest_slash)
    for name, following in pairwise(ordered):
        if following.startswith(name) and following.startswith("/", len(name)):
            yield name


def _with_lowest_slash(name: str) -> str:
    # No name has a control character.
    return name.replace("/", "\0")


def _both(number: int | None = None) -> ArchiveRejected:
    which = "An entry" if number is None else f"Entry {number}"
    return rejected(
        Reason.FILE_AND_DIRECTORY, f"{which} has a name that is both a file and a directory."
    )


def differing_in_case(names: Iterable[str]) -> set[str]:
    """The names of files to leave out so that names stay unique on a case-insensitive disk.

    Of several, the first in sort order stays. A file yields to a directory: many repositories have
    BUILD and build/.
    """
    kept: dict[str, str] = {}
    folders: set[str] = set()
    left_out: set[str] = set()
    for name in names:
        key = _caseless(name.removesuffix("/"))
        if name.endswith("/"):
            folders.add(key)
        else:
            other = kept.setdefault(key, name)
            if other != name:
                kept[key] = min(name, other)
                left_out.add(max(name, other))
    left_out.update(kept[key] for key in kept.keys() & folders)
    left_out.update(kept[key] for key in _around_others(kept.keys() | folders) if key in kept)
    return left_out


def _caseless(name: str) -> str:
    if name.isascii():
        return name.lower()
    # Decomposed first: case folding handles letters, not composed accents.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
