"""C++. Includes are resolved as in C."""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages.c_builtins import CPP_NAMES
from coatcheck_codegraph.languages.c_extraction import extract_cpp
from coatcheck_codegraph.languages.c_rules import RULES

LANGUAGE: Final = Language(
    name="cpp",
    suffixes=(".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".ipp", ".inl"),
    extract=extract_cpp,
    rules=RULES,
    implicit_self=True,
    constructors=("{}",),
    builtins=CPP_NAMES,
)
