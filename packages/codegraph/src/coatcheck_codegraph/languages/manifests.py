"""Reads manifests (go.mod, package.json, ...), which say how files of a project find each other.

No content raises an exception: a manifest that cannot be read makes the file ``broken``.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.project import MANIFEST, Project

_BYTES_MAX: Final = 1024 * 1024
_VALUE_CHARACTERS_MAX: Final = 64 * 1024

_GO_MODULE: Final = re.compile(r"""^\s*module\s+["`]?([^\s"`()]+)""", re.MULTILINE)
_JSON_TOKEN: Final = re.compile(
    r"""(?P<kept>"(?:[^"\\]|\\.)*(?:"|\Z))|(?P<comment>/\*.*?(?:\*/|\Z)|//[^\n]*)|(?P<space>\s+)|.""",
    re.DOTALL,
)

_Properties = dict[str, str]


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of a manifest: its properties."""
    lines = source.count(b"\n") + (bool(source) and not source.endswith(b"\n"))
    facts = FileFacts(path, MANIFEST, lines)
    read = _READERS.get(posixpath.basename(path))
    if read is None or len(source) > _BYTES_MAX:
        facts.broken = True
        return facts
    try:
        properties = read(source.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        facts.broken = True
        return facts
    facts.properties = {
        name: value
        for name, value in properties.items()
        if value and len(value) <= _VALUE_CHARACTERS_MAX
    }
    return facts


def _go_mod(text: str) -> _Properties:
    module = _GO_MODULE.search(text)
    return {"go.module": module.group(1)} if module else {}


def _package_json(text: str) -> _Properties:
    read = _table(json.loads(text))
    types = _text(read, "types") or _text(read, "typings")
    return {
        "npm.name": _text(read, "name"),
        "npm.main": _text(read, "main"),
        "npm.module": _text(read, "module"),
        "npm.types": types,
    }


def _tsconfig(text: str) -> _Properties:
    read = _table(json.loads(_without_comments(text)))
    options = _table(read.get("compilerOptions"))
    return {
        "ts.baseUrl": _text(options, "baseUrl"),
        "ts.paths": _mapping(options.get("paths")),
    }


def _without_comments(text: str) -> str:
    """JSON as people write it in configuration, as JSON: no comments, no comma before an end."""
    kept: list[str] = []
    comma_at = -1
    for token in _JSON_TOKEN.finditer(text):
        if token.lastgroup in ("comment", "space"):
            continue
        word = token.group()
        if word in "}]" and comma_at == len(kept) - 1 and kept:
            kept.pop()
        kept.append(word)
        if word == ",":
            comma_at = len(kept) - 1
    return "".join(kept)


def _cargo_toml(text: str) -> _Properties:
    read = tomllib.loads(text)
    package, library = _table(read.get("package")), _table(read.get("lib"))
    return {
        "cargo.name": _text(library, "name") or _text(package, "name"),
        "cargo.lib": _text(library, "path"),
    }


def _composer_json(text: str) -> _Properties:
    read = _table(json.loads(text))
    merged = {
        prefix: folders
        for section in ("autoload-dev", "autoload")
        for prefix, folders in _table(_table(read.get(section)).get("psr-4")).items()
    }
    return {"composer.psr4": _mapping(merged)}


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(table: Mapping[str, object], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> str:
    """A table from text to lists of text, as JSON; what else is in it is left out."""
    kept: dict[str, list[str]] = {}
    for key, places in sorted(_table(value).items()):
        listed = places if isinstance(places, list) else [places]
        kept[key] = [place for place in listed if isinstance(place, str)]
    return json.dumps(kept) if kept else ""


_READERS: Final[Mapping[str, Callable[[str], _Properties]]] = {
    "go.mod": _go_mod,
    "package.json": _package_json,
    "tsconfig.json": _tsconfig,
    "jsconfig.json": _tsconfig,
    "Cargo.toml": _cargo_toml,
    "composer.json": _composer_json,
}


class _NoRules:
    """A manifest imports nothing."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        del project, file
        return Outside(imported.module)

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[str]:
        del project, file
        return ()

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | None:
        del project, file, name
        return None


LANGUAGE: Final = Language(
    name=MANIFEST,
    suffixes=(),
    extract=extract,
    rules=_NoRules(),
    filenames=tuple(_READERS),
)
