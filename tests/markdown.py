"""Reads what a test wants to know from the repository's Markdown files."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

_NOT_OURS = {"node_modules", "dist", "build"}
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_FILE_NAME = re.compile(r"# (?P<name>[\w/]+\.py)\n")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: what its fence says, and what it holds."""

    info: str
    text: str

    @property
    def file_name(self) -> str | None:
        """The name in a first line such as ``# notes.py``, by which the page calls the block."""
        found = _FILE_NAME.match(self.text)
        return found["name"] if found else None


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(REPOSITORY))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self, info: str | None = None) -> list[Block]:
        """The fenced blocks in order; only those of one kind, if it is named."""
        found = [
            Block(match["info"], textwrap.dedent(match["text"]))  # those in a list are indented
            for match in _FENCE.finditer(self.text)
        ]
        return found if info is None else [block for block in found if block.info == info]

    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    def links(self) -> list[str]:
        return [match["target"] for match in _LINK.finditer(self.prose())]

    def anchors(self) -> set[str]:
        """What a link can name after ``#``, spelt as GitHub spells it."""
        return {_anchor(match["title"]) for match in _HEADING.finditer(self.prose())}


def pages(*folders: str) -> list[Page]:
    """The repository's Markdown files, all of them or those below some folders (or files)."""
    roots = [REPOSITORY / folder for folder in folders] or [REPOSITORY]
    found = {
        path
        for root in roots
        for path in ([root] if root.is_file() else root.rglob("*.md"))
        if not any(
            part in _NOT_OURS or part.startswith(".") for part in path.relative_to(REPOSITORY).parts
        )
    }
    return [Page(path) for path in sorted(found)]


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
