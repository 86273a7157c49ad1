"""Writes the pages for Sphinx: those of docs/, and the files they link to outside of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from scripts.docs_site.repository import DOCS, REPOSITORY

_LINK = re.compile(r"\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INFO = re.compile(r"^(?P<fence> *```)(?P<language>\w+) [^\n]*$", re.MULTILINE)

OTHER_PAGES: Final = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "bench/README.md": "project/bench.md",
    "bench/results/latest.md": "project/bench-results.md",
    "clients/typescript/README.md": "project/typescript.md",
    "packages/codegraph/README.md": "project/codegraph.md",
}
"""Pages outside of docs/, and their places on the site."""

_LANGUAGES: Final = {".py": "python", ".mjs": "javascript", ".ts": "typescript", ".json": "json"}

SECTIONS: Final = {
    "Tutorial": "tutorial",
    "How to": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Decisions": "adr",
}


def write(source: Path, api_pages: Sequence[str]) -> None:
    """Write the pages below ``source``, with a table of contents from the index's links."""
    pages = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    pages |= {
        REPOSITORY / name: placed
        for name, placed in OTHER_PAGES.items()
        if (REPOSITORY / name).exists()
    }
    programs: dict[Path, str] = {}

    def placed(target: Path) -> str | None:
        """The place of a link's target on the site; None if it is not there."""
        if target in pages:
            return pages[target]
        if target.is_file() and _LANGUAGES.get(target.suffix) and _is_example(target):
            name = target.relative_to(REPOSITORY).as_posix().replace("/", "-")
            programs[target] = f"examples/{name}.md"
            return programs[target]
        return None

    for path, page in pages.items():
        text = _rewritten(path, page, placed)
        if page == "index.md":
            text += contents(text, api_pages)
        _put(source / page, text)
    for path, page in programs.items():
        name = path.relative_to(REPOSITORY).as_posix()
        language = _LANGUAGES[path.suffix]
        _put(source / page, f"# `{name}`\n\n````{language}\n{path.read_text()}````\n")
    for image in sorted((DOCS / "images").glob("*")) if (DOCS / "images").is_dir() else ():
        target = source / "images" / image.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(image.read_bytes())
    _put(source / "examples/index.md", _list_of("Examples", programs.values(), "examples"))


def contents(index: str, api_pages: Sequence[str]) -> str:
    """The navigation: each section's pages, in the order in which the index links to them."""
    linked: list[str] = []
    for match in _LINK.finditer(_FENCE.sub("", index)):
        page = match["target"].partition("#")[0]
        if page.endswith(".md") and page not in linked:
            linked.append(page)
    trees = []
    for caption, folder in SECTIONS.items():
        names = [page for page in linked if page.startswith(f"{folder}/")]
        if folder == "explanation":  # with the pages that are in no folder
            names += [page for page in linked if "/" not in page]
        if folder == "reference":
            names += ["reference/api/index.md"] if api_pages else []
        trees.append(_tree(names, caption))
    others = [placed for name, placed in OTHER_PAGES.items() if (REPOSITORY / name).exists()]
    trees.append(_tree([*others, "examples/index.md"], "Project"))
    return "\n" + "\n".join(trees)


def _tree(pages: Iterable[str], caption: str | None) -> str:
    options = ":hidden:\n:maxdepth: 1\n" + (f":caption: {caption}\n" if caption else "")
    names = "\n".join(page.removesuffix(".md") for page in pages)
    return f"```{{toctree}}\n{options}\n{names}\n```\n"


def _list_of(title: str, pages: Iterable[str], folder: str) -> str:
    names = [page.removeprefix(f"{folder}/") for page in sorted(set(pages))]
    return (
        f"# {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n"
        + "\n".join(name.removesuffix(".md") for name in names)
        + "\n```\n"
    )


def _rewritten(path: Path, page: str, placed: Callable[[Path], str | None]) -> str:
    """The page's text, with links to places on the site."""

    def link(match: re.Match[str]) -> str:
        target, hash_mark, anchor = match["target"].partition("#")
        if not target or "://" in target or target.startswith(("mailto:", "<")):
            return match[0]
        found = Path(os.path.normpath(path.parent / target))
        if found == REPOSITORY / "examples":
            there: str | None = "examples/index.md"
        elif "/images/" in found.as_posix():
            there = found.relative_to(DOCS).as_posix()
        else:
            there = placed(found)
        if there is None:
            return match["text"]  # a source file: its name is enough
        relative = os.path.relpath(there, Path(page).parent)
        return f"[{match['text']}]({relative}{hash_mark}{anchor})"

    text = path.read_text(encoding="utf-8")
    pieces, at = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(link, text[at : fence.start()]), _INFO.sub(_plain_info, fence[0])]
        at = fence.end()
    pieces.append(_LINK.sub(link, text[at:]))
    joined = "".join(pieces)
    if path.parent == DOCS / "adr" and path.name == "README.md":
        numbered = sorted(each.name for each in path.parent.glob("[0-9]*.md"))
        joined += "\n" + _tree(numbered, None)
    return joined


def _plain_info(match: re.Match[str]) -> str:
    return f"{match['fence']}{match['language']}"


def _is_example(path: Path) -> bool:
    return (REPOSITORY / "examples") in path.parents


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
