"""TypeScript with JSX, which has its own grammar: ``<T>x`` is not a type assertion there."""

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
    return Parser(Grammar(tree_sitter_typescript.language_tsx()))


def _extract(path: str, source: bytes) -> FileFacts:
    return ecmascript_extraction.extract(path, "tsx", _parser(), source)


LANGUAGE = Language(
    name="tsx",
    suffixes=(".tsx",),
    extract=_extract,
    rules=EcmascriptRules(),
    constructors=("constructor",),
    builtins=GLOBALS | TEST_GLOBALS | GLOBAL_TYPES,
)
