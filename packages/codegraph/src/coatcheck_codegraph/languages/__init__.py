"""The languages that are understood, found by a file's name and loaded when first met."""

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
"""By the module in this package that has ``LANGUAGE``."""

_MANIFESTS: Final = frozenset(
    {"go.mod", "package.json", "tsconfig.json", "jsconfig.json", "Cargo.toml", "composer.json"}
)
_BY_SUFFIX: Final = {suffix: name for name, suffixes in _MODULES.items() for suffix in suffixes}


def language_of(path: str) -> str | None:
    """The name of the language of a file, by its name alone; None if it is not understood."""
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
