"""Server-Sent Events that replace parts of a page."""

from __future__ import annotations

from typing import Final

KEEP_ALIVE: Final = b": still here\n\n"


def event(name: str, text: str) -> bytes:
    """``text``, usually HTML, for the elements with ``sse-swap="<name>"``."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()


RELOAD: Final = event("gone", "")
"""Makes the page reload, because its session ended or changed."""
