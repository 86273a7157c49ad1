"""Go."""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages.go_extraction import extract
from coatcheck_codegraph.languages.go_rules import GoRules
from coatcheck_codegraph.words import words

_BUILTINS: Final = frozenset(
    words(
        """
        append cap clear close complex copy delete imag len make max min new panic print println
        real recover any bool byte comparable complex64 complex128 error float32 float64 int int8
        int16 int32 int64 rune string uint uint8 uint16 uint32 uint64 uintptr
        """
    )
)

LANGUAGE: Final = Language(
    name="go",
    suffixes=(".go",),
    extract=extract,
    rules=GoRules(),
    builtins=_BUILTINS,
)
