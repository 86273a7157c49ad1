"""Which files of an archive are analysed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from coatcheck.archives import Entry
from coatcheck_codegraph.languages import language_of

Skipped = Literal["vendored", "generated", "too_large"]
"""Why source code is left out: it is somebody else's, it was made from other files in the archive,
or there is too much of it in one file."""

VENDORED_FOLDERS: Final = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".venv",
        "__MACOSX",
        "__pycache__",
        "bower_components",
        "node_modules",
        "site-packages",
    }
)
"""What is inside of a folder of such a name is installed or kept by a tool, not written here."""

GENERATED_SUFFIXES: Final = (".min.js", ".bundle.js", "_pb2.py", "_pb2_grpc.py", ".pb.go")


@dataclass(slots=True)
class Members:
    """The entries to parse, by their places in the archive's list, and what source code is left
    out. Nothing else is unpacked."""

    sources: dict[int, Entry] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


def sorted_out(entries: Iterable[Entry], file_bytes_max: int) -> Members:
    """The members of an archive by what is to be done with them."""
    members = Members()
    for place, entry in enumerate(entries):
        if entry.is_directory or language_of(entry.name) is None:
            continue
        reason = _left_out(entry, file_bytes_max)
        if reason is None:
            members.sources[place] = entry
        else:
            members.skipped[reason] += 1
    return members


def _left_out(entry: Entry, file_bytes_max: int) -> Skipped | None:
    if not VENDORED_FOLDERS.isdisjoint(entry.name.split("/")[:-1]):
        return "vendored"
    if entry.name.endswith(GENERATED_SUFFIXES):
        return "generated"
    if entry.unpacked_bytes > file_bytes_max:
        return "too_large"
    return None
