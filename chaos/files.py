"""Files of a running deployment, which may disappear while they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> Iterator[Path]:
    """With ``os.walk``, which tolerates folders removed meanwhile; ``rglob`` does not."""
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def entries_two_below(folder: Path) -> list[Path]:
    """The contents of the folders in ``folder``."""
    return [
        Path(root, name)
        for root, folders, files in os.walk(folder)
        if Path(root).parent == folder
        for name in (*folders, *files)
    ]
