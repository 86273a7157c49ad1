"""TypeScript: JavaScript with types."""

from __future__ import annotations

from functools import cache

import tree_sitter_typescript
from tree_sitter import Language as Grammar
from tree_sitter import Parser

from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages import ecmascript_extraction
from coatcheck_codegraph.languages.ecmascript_builtins import (
    GLOBAL_TYPES,
    GLOBALS,
    TEST_GLOBALS,
)
from coatcheck_codegraph.languages.ecmascript_rules import EcmascriptRules


@cache
def _parser() -> Parser:
    return Parser(Grammar(tree_sitter_typescript.language_typescript()))


def _extract(path: str, source: bytes) -> FileFacts:
    return ecmascript_extraction.extract(path, "typescript", _parser(), source)


LANGUAGE = Language(
    name="typescript",
    suffixes=(".ts", ".mts", ".cts"),
    extract=_extract,
    rules=EcmascriptRules(),
    constructors=("constructor",),
    builtins=GLOBALS | TEST_GLOBALS | GLOBAL_TYPES,
)
