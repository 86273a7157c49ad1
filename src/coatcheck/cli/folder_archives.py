"""Packs a folder of code into the zip that the graphs API accepts."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coatcheck.cli.errors import Misconfigured

_LEFT_OUT: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__"),
        *(".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".coatcheck"),
    }
)
"""Folders without the project's own code; the server would not parse them either."""

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold. All files get it, so one folder always gives one zip."""


@contextmanager
def archive_of(path: Path) -> Iterator[Path]:
    """The zip itself, or a temporary zip of the folder."""
    if not path.is_dir():
        if not path.exists():
            raise Misconfigured(f"{path} does not exist\nName a folder with code, or a zip.")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="coatcheck-") as folder:
        made = Path(folder, "code.zip")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in _files(path):
                entry = zipfile.ZipInfo(file.relative_to(path).as_posix(), _EARLIEST)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
        if not archive.namelist():
            raise Misconfigured(f"{path} contains no files to send")
        yield made


def _files(folder: Path) -> Iterator[Path]:
    """Regular files in order of their names. Links are skipped: they may point anywhere."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                yield file
