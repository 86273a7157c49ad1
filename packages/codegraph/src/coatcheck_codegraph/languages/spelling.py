"""Types and parameters as they are written, without what may not leave the parser."""

from __future__ import annotations

import re
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import SIGNATURE_CHARACTERS_MAX, text

_SUSPECT: Final = re.compile(
    r"[\"`/{]|'(?:\\[^']*|[^\\'])'|(?<![A-Za-z_0-9])[0-9]|\b(?:true|false)\b"
)
"""What any literal, comment or body has in it: most signatures have nothing of it."""

_BYTES_MAX: Final = 64 * SIGNATURE_CHARACTERS_MAX


def spelled(node: Node | None) -> str:
    """The text of ``node``: ``_`` for a literal or a block, and no comment or tag."""
    if node is None or node.end_byte - node.start_byte > _BYTES_MAX:
        return ""
    written = text(node)
    if not _SUSPECT.search(written):
        return written
    pieces: list[str] = []
    nodes = [node]
    end = node.start_byte
    while nodes:
        inner = nodes.pop()
        kind = inner.type
        if "comment" in kind:
            continue
        hidden = "literal" in kind or kind == "block"
        if inner.child_count and not hidden:
            nodes.extend(reversed(inner.children))
            continue
        if inner.start_byte > end:
            pieces.append(" ")
        end = inner.end_byte
        pieces.append(text(inner) if not hidden else "" if _is_tag(inner) else "_")
    return "".join(pieces)


def _is_tag(literal: Node) -> bool:
    return literal.parent is not None and literal.parent.type == "field_declaration"
