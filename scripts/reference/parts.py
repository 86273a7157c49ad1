"""The parts of a page that are generated, and what they are made of.

A page is written by hand, except for what stands between two markers:

    <!-- generated: the states -->
    ...
    <!-- end of generated -->
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import coatcheck
from coatcheck.settings import SETTINGS

REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"

Parts = Mapping[str, Mapping[str, Callable[[], str]]]
"""The function that generates each part, by page and by the part's name."""

_PART: Final = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[^\n]+?) -->\n).*?(?P<end><!-- end of generated -->\n)",
    re.DOTALL,
)
_SETTING: Final = re.compile(r"(?<![\w`\[])`?(COATCHECK_[A-Z_]*[A-Z])`?(?![\w`\]])")


class Outdated(Exception):
    """A page lacks a part, or a declaration lacks its description. Says what to write where."""


def regenerated(parts: Parts, folder: Path = REFERENCE) -> dict[Path, str]:
    """The text that each page of the folder should have."""
    paths = {folder / f"{name}.md": made for name, made in parts.items()}
    return {path: _page(path, made) for path, made in paths.items()}


def _page(path: Path, made: Mapping[str, Callable[[], str]]) -> str:
    text, page = path.read_text("utf-8"), path.stem
    present = [match["name"] for match in _PART.finditer(text)]
    for name in made:
        if present.count(name) != 1:
            raise Outdated(
                f"docs/reference/{page}.md must have a section with these two lines, once:\n"
                f"<!-- generated: {name} -->\n<!-- end of generated -->\n"
                "Add them, and run `make reference`."
            )
    for name in present:
        if name not in made:
            raise Outdated(
                f"docs/reference/{page}.md has a part {name!r}, but the code declares nothing of "
                "that name: delete its section."
            )
    return _PART.sub(
        lambda match: f"{match['begin']}\n{made[match['name']]().strip()}\n\n{match['end']}", text
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(each) for each in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    return f"`{text}`"


def prose(text: str) -> str:
    """A docstring or a help text as Markdown, with links to the settings that it names."""
    return _SETTING.sub(_linked, text.replace("``", "`"))


def _linked(match: re.Match[str]) -> str:
    name = match[1]
    if any(setting.variable == name for setting in SETTINGS.values()):
        return f"[`{name}`](settings.md#{name.lower()})"
    return f"`{name}`"


@cache
def load_everything() -> None:
    """Import every module, so that all declarations are known."""
    for found in pkgutil.walk_packages(coatcheck.__path__, "coatcheck."):
        if not found.name.endswith("__main__"):
            import_module(found.name)


def own_docstring(kind: type) -> str:
    """What the class says of itself, in one paragraph; not what it inherits."""
    written = vars(kind).get("__doc__")
    if not written:
        raise Outdated(f"{kind.__module__}.{kind.__qualname__} needs a docstring: its meaning.")
    return inspect.cleandoc(written).partition("\n\n")[0]


def described_names(source: ModuleType | type) -> dict[str, str]:
    """The constants of a module, or the members of an enumeration, with the text below each."""
    body = ast.parse(inspect.getsource(source)).body
    if inspect.isclass(source):
        assert isinstance(body[0], ast.ClassDef)
        body = body[0].body
    described = {}
    for statement, below in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if name.startswith("_"):
            continue
        if not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)):
            raise Outdated(f"{source.__name__}: {name} needs its meaning, in a string below it.")
        described[name] = inspect.cleandoc(str(below.value.value))
    return described
