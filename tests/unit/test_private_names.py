"""Tests patch no private name: what is patched by name cannot be renamed, and is no interface."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests", "packages/codegraph/tests")
PATCHES = frozenset({"setattr", "delattr", "patch", "object"})


def patched_private_names(source: str) -> Iterator[str]:
    """Private names that ``monkeypatch.setattr``, ``mock.patch`` and their like are given."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            for argument in node.args[:2] if called in PATCHES else ():
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    name = argument.value.rpartition(".")[2]
                    if name.startswith("_") and not name.endswith("__"):
                        yield name


def test_no_test_patches_a_private_name() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "node_modules" not in path.parts
        for name in patched_private_names(path.read_text())
    }
    assert not found


def test_every_way_to_patch_one_is_seen() -> None:
    source = """
monkeypatch.setattr(module, "_SECONDS", 1)
monkeypatch.setattr("package.module._SECONDS", 1)
mock.patch("package.module._function")
mock.patch.object(thing, "_method")
monkeypatch.setattr(module, "SECONDS", 1)
monkeypatch.setattr(thing, "__call__", 1)
"""
    assert list(patched_private_names(source)) == ["_SECONDS", "_SECONDS", "_function", "_method"]
