"""Files that comments, docstrings and the map of the code name exist."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.markdown import REPOSITORY

_FILE = re.compile(r"(?<![\w./{}<*-])(?:[\w-]+/)*[\w-]+\.(?:py|sql)\b(?![\w/(])")
SEARCHED = r"(src|chaos|bench|scripts)/.*\.(py|sql)$|ARCHITECTURE\.md$"
EXAMPLES = {"contenders/NAME.py"}


def prose(path: Path) -> Iterator[str]:
    """The comments and docstrings of a file; all of a page."""
    text = path.read_text()
    match path.suffix:
        case ".py":
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.string
            for node in ast.walk(ast.parse(text)):
                match node:
                    case ast.Expr(value=ast.Constant(value=str() as docstring)):
                        yield docstring
        case ".sql":
            yield from (line.partition("--")[2] for line in text.splitlines())
        case ".md":
            yield text


def test_every_file_that_is_named_exists() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    tracked = [name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()]
    split = [name.split("/") for name in tracked]
    known = EXAMPLES | {"/".join(each[start:]) for each in split for start in range(len(each))}
    missing = {
        f"{name}: {named}"
        for name in tracked
        if (name.startswith(SEARCHED) and name.endswith((".py", ".sql")))
        or name == "ARCHITECTURE.md"
        for text in prose(REPOSITORY / name)
        for named in _FILE.findall(text)
        if named not in known
    }
    assert missing == set()


def test_a_file_name_in_prose_is_seen() -> None:
    assert _FILE.findall("see ``core/gone.py``, or gone.sql (db/pool.py).") == [
        "core/gone.py",
        "gone.sql",
        "db/pool.py",
    ]
