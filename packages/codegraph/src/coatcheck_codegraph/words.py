"""Long lists of words, as one would write them on paper."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The words of a text, in order: what lies between blanks and line breaks."""
    return tuple(text.split())
