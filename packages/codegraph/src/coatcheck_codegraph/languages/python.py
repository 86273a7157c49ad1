"""Python."""

from __future__ import annotations

import builtins
from typing import Final

from coatcheck_codegraph.language import Language
from coatcheck_codegraph.languages.python_extraction import extract
from coatcheck_codegraph.languages.python_rules import PythonRules, submodule

LANGUAGE: Final = Language(
    name="python",
    suffixes=(".py", ".pyi"),
    extract=extract,
    rules=PythonRules(),
    constructors=("__init__",),
    builtins=frozenset(name for name in dir(builtins) if not name.startswith("_")),
    private_prefix="_",
    submodule=submodule,
)
