"""JavaScript, with JSX: ES modules and CommonJS."""

from __future__ import annotations

from functools import cache

import tree_sitter_javascript
from tree_sitter import Language as Grammar
from tree_sitter import Parser

from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages import ecmascript_extraction
from coatcheck_codegraph.languages.ecmascript_builtins import GLOBALS, TEST_GLOBALS
from coatcheck_codegraph.languages.ecmascript_rules import EcmascriptRules


@cache
def _parser() -> Parser:
    return Parser(Grammar(tree_sitter_javascript.language()))


def _extract(path: str, source: bytes) -> FileFacts:
    return ecmascript_extraction.extract(path, "javascript", _parser(), source)


LANGUAGE = Language(
    name="javascript",
    suffixes=(".js", ".mjs", ".cjs", ".jsx"),
    extract=_extract,
    rules=EcmascriptRules(),
    constructors=("constructor",),
    builtins=GLOBALS | TEST_GLOBALS,
)
