"""The package as others install and import it: its public names, and its place beside Coatcheck."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import coatcheck_codegraph
from tests.markdown import REPOSITORY

PACKAGE = Path(coatcheck_codegraph.__file__).parent


def project(folder: str) -> dict[str, Any]:
    """What a distribution of this repository says of itself."""
    described = tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text())
    return dict(described["project"])


def test_these_are_the_public_names() -> None:
    assert coatcheck_codegraph.__all__ == [
        "FileFacts",
        "Processing",
        "Project",
        "Resolution",
        "language_of",
        "parse",
        "read_folder",
        "resolve",
        "write_document",
    ]
    assert all(hasattr(coatcheck_codegraph, name) for name in coatcheck_codegraph.__all__)


def test_coatcheck_asks_for_exactly_this_version() -> None:
    version = project("packages/codegraph")["version"]
    assert project(".")["optional-dependencies"] == {"graphs": [f"coatcheck-codegraph=={version}"]}
    assert metadata.version("coatcheck-codegraph") == version


def test_what_only_it_needs_is_no_dependency_of_coatcheck() -> None:
    own = {each.partition(">")[0] for each in project("packages/codegraph")["dependencies"]}
    of_coatcheck = {each.partition(">")[0] for each in project(".")["dependencies"]}
    assert own & of_coatcheck == {"msgspec"}
    assert {"tree-sitter", "networkx"} <= own


def test_each_dependency_is_pinned_for_this_repository() -> None:
    named = set((REPOSITORY / "requirements/codegraph.in").read_text().splitlines()[2:])
    assert named == {
        each.partition(">")[0] for each in project("packages/codegraph")["dependencies"]
    }


def test_it_is_imported_without_coatcheck_and_without_a_grammar() -> None:
    program = "import sys, coatcheck_codegraph; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.split())
    assert "coatcheck_codegraph.resolve" in loaded
    assert not {name for name in loaded if name.split(".")[0] in ("coatcheck", "asyncio", "http")}
    assert not {name for name in loaded if name.startswith("tree_sitter_")}


def test_no_two_classes_have_one_name() -> None:
    found = [
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(found).items() if count > 1] == []
