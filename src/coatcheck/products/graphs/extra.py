"""Says whether the code analyser, the extra ``graphs``, is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

HOW_TO_INSTALL: Final = 'pip install "coatcheck[graphs]"'


def is_installed() -> bool:
    """Look for the package without importing it: only an analysis needs its grammars."""
    return find_spec("coatcheck_codegraph") is not None
