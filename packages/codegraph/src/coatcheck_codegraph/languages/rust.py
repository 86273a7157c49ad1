"""Rust."""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages.rust_builtins import BUILTINS
from coatcheck_codegraph.languages.rust_extraction import extract
from coatcheck_codegraph.languages.rust_rules import RustRules

LANGUAGE: Final = Language(
    name="rust",
    suffixes=(".rs",),
    extract=extract,
    rules=RustRules(),
    builtins=BUILTINS,
)
