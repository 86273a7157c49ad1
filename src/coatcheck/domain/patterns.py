"""Patterns that a whole text has to fit."""

from __future__ import annotations


def whole(pattern: str) -> str:
    """``pattern`` for all of a text. In Python a ``$`` alone lets a final line feed through."""
    return rf"^(?:{pattern})$(?!\n)"
