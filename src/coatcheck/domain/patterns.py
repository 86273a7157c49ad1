"""Regular expressions that must match a whole text."""

from __future__ import annotations


def whole(pattern: str) -> str:
    """``pattern`` for a whole text. In Python a ``$`` alone allows a final line feed."""
    return rf"^(?:{pattern})$(?!\n)"
