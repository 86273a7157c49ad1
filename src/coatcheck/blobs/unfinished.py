"""Removes the leftovers of interrupted uploads from a local folder.

The folder store writes to a file named ``<key>#<number>``, which no listing returns, and renames
it when it is complete. A process that dies in between leaves that file, or an empty folder.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path


def delete_unfinished(root: Path, prefix: str, limit: datetime | None) -> int:
    """Delete such files under ``prefix`` that are older than ``limit``, and emptied folders.

    Returns the number of deleted files.
    """
    deleted = 0
    for folder, folders, files in os.walk(root / prefix, topdown=False):
        for name in files:
            if "#" in name and _is_older(Path(folder, name), limit):
                Path(folder, name).unlink(missing_ok=True)
                _remove_while_empty(Path(folder), root)
                deleted += 1
        if not folders and not files and _is_older(Path(folder), limit):
            _remove_while_empty(Path(folder), root)
    return deleted


def _is_older(path: Path, limit: datetime | None) -> bool:
    try:
        written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:  # finished or deleted in the meantime
        return False
    return limit is None or written_at < limit


def _remove_while_empty(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # not empty or already gone: nothing left to do
        while folder != root:
            folder.rmdir()
            folder = folder.parent
