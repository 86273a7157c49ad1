"""The named SQL statements of the program, as their files have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "src"
_NAME: Final = re.compile(r"^-- name: (\w+)(?: once)?$", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A section of a file: its comment, and its code with the includes that it names."""

    package: str
    file: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.package}:{self.file}/{self.name}"

    @property
    def header(self) -> str:
        """The comment that the section begins with."""
        lines = self.text.strip().splitlines()
        end = next((at for at, line in enumerate(lines) if not line.startswith("--")), len(lines))
        return "\n".join(lines[:end])

    @property
    def code(self) -> str:
        """The section without comments."""
        return "\n".join(
            line for line in self.text.splitlines() if not line.lstrip().startswith("--")
        ).strip()


def statements() -> Iterator[Statement]:
    """Every named statement of the core and of the products."""
    for path in sorted(SOURCE.rglob("*.sql")):
        package = ".".join(path.parent.relative_to(SOURCE).parts)
        _, *sections = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(sections[::2], sections[1::2], strict=True):
            yield Statement(package, path.stem, name, text)
