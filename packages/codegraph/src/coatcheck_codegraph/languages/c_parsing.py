"""Parses C and C++, past what a parser without a preprocessor stumbles over."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import tree_sitter_c
import tree_sitter_cpp
from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from coatcheck_codegraph.builder import Builder
from coatcheck_codegraph.extraction import lines_in
from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages.c_walk import Walk

_PLUS_PLUS: Final = re.compile(
    rb"^[ \t]*(?:namespace\b[^;=(\n]*$|namespace\b[^;=(\n]*\{|template[ \t]*<|class[ \t]+\w+"
    rb"|(?:public|private|protected)[ \t]*:|using[ \t]+\w|inline[ \t]+namespace\b)",
    re.MULTILINE,
)
"""What begins lines of C++ and none of C."""

_COMMENT: Final = re.compile(rb"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)

_MACRO_IN_CLASS: Final = re.compile(
    rb"\b(?:class|struct)[ \t]+([A-Z_][A-Z0-9_]*(?:\([^()\n]{0,200}\))?)"
    rb"(?=[ \t]+[A-Za-z_]\w*[^;()=\n]{0,200}$)",
    re.MULTILINE,
)
"""The macro in ``class API Parser : public Base {``, after which the name would not be seen."""


def extract_c(path: str, source: bytes) -> FileFacts:
    """The facts of a file of C. A header may turn out to be C++."""
    is_header = path.lower().endswith(".h")
    if is_header and _is_plus_plus(source):
        return extract_cpp(path, source)
    root = _c().parse(source).root_node
    if is_header and root.has_error:
        as_cpp = _cpp().parse(source).root_node
        if not as_cpp.has_error:
            return _facts(Builder(path, "cpp"), as_cpp, plus_plus=True)
    return _facts(Builder(path, "c"), root, plus_plus=False)


def extract_cpp(path: str, source: bytes) -> FileFacts:
    """The facts of a file of C++."""
    root = _cpp().parse(_MACRO_IN_CLASS.sub(_blanked, source)).root_node
    return _facts(Builder(path, "cpp"), root, plus_plus=True)


def _facts(builder: Builder, root: Node, *, plus_plus: bool) -> FileFacts:
    Walk(builder, plus_plus=plus_plus).run(root)
    builder.facts.lines = lines_in(root)
    builder.facts.broken = root.has_error
    return builder.facts


def _is_plus_plus(source: bytes) -> bool:
    return bool(_PLUS_PLUS.search(source)) and bool(_PLUS_PLUS.search(_COMMENT.sub(b"", source)))


def _blanked(found: re.Match[bytes]) -> bytes:
    whole, macro = found.group(0), found.group(1)
    return whole[: -len(macro)] + b" " * len(macro)


@cache
def _c() -> Parser:
    return Parser(Grammar(tree_sitter_c.language()))


@cache
def _cpp() -> Parser:
    return Parser(Grammar(tree_sitter_cpp.language()))
