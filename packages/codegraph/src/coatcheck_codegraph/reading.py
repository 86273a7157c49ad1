"""Reads source files: one file into its facts, or a whole folder into a project."""

from __future__ import annotations

from pathlib import Path

from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages import language_of, load
from coatcheck_codegraph.project import Project


def parse(path: str, source: bytes) -> FileFacts:
    """The facts of one file: its declarations, imports, calls and base classes.

    ``path`` is relative to the top of the project, with ``/`` between folders; its suffix
    determines the language. Raises ValueError if ``language_of(path)`` is None.
    """
    language = language_of(path)
    if language is None:
        raise ValueError(f"{path}: not a supported language")
    return load(language).extract(path, source)


def read_folder(folder: str | Path) -> Project:
    """A project of every file below ``folder`` in a supported language, recognised by its name.

    This includes ``node_modules`` and generated code. To leave files out, ``parse`` the others
    yourself and make a ``Project`` of them.
    """
    top = Path(folder)
    names = (path.relative_to(top).as_posix() for path in sorted(top.rglob("*")) if path.is_file())
    return Project(parse(name, (top / name).read_bytes()) for name in names if language_of(name))
