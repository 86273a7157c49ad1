"""The supported languages, found by file name and loaded on first use."""

from __future__ import annotations

import importlib
import posixpath
from collections.abc import Mapping
from functools import cache
from typing import Final

from coatcheck_codegraph.language import Language

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "python": (".py", ".pyi"),
    "javascript": (".js", ".mjs", ".cjs", ".jsx"),
    "typescript": (".ts", ".mts", ".cts"),
    "tsx": (".tsx",),
    "java": (".java",),
    "go": (".go",),
    "rust": (".rs",),
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".ipp", ".inl"),
    "csharp": (".cs",),
    "ruby": (".rb", ".rake", ".gemspec"),
    "php": (".php",),
}
"""File suffixes by the module in this package that defines ``LANGUAGE``."""

_MANIFESTS: Final = frozenset(
    {"go.mod", "package.json", "tsconfig.json", "jsconfig.json", "Cargo.toml", "composer.json"}
)
_BY_SUFFIX: Final = {suffix: name for name, suffixes in _MODULES.items() for suffix in suffixes}


def language_of(path: str) -> str | None:
    """The name of a file's language, by the file's name alone; None if it is not supported."""
    if posixpath.basename(path) in _MANIFESTS:
        return "manifest"
    _, suffix = posixpath.splitext(path)
    return _BY_SUFFIX.get(suffix.lower() if suffix != ".C" else ".cpp")


@cache
def load(name: str) -> Language:
    """The language of that name."""
    module = importlib.import_module(f"{__name__}.{'manifests' if name == 'manifest' else name}")
    language: Language = module.LANGUAGE
    return language
