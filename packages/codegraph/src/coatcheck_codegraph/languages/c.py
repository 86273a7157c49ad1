"""C, and headers that may be C++."""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages.c_builtins import C_FUNCTIONS
from coatcheck_codegraph.languages.c_extraction import extract_c
from coatcheck_codegraph.languages.c_rules import RULES

LANGUAGE: Final = Language(
    name="c",
    suffixes=(".c", ".h"),
    extract=extract_c,
    rules=RULES,
    builtins=C_FUNCTIONS,
)
