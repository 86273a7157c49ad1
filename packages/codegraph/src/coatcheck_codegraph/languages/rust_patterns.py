"""The variables that a pattern of Rust declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, text
from coatcheck_codegraph.facts import Ref
from coatcheck_codegraph.languages.rust_references import References
from coatcheck_codegraph.languages.rust_types import Holding

Held = Holding | Ref | None

_SAME: Final = ("ref_pattern", "mut_pattern", "reference_pattern", "match_pattern")
_SEVERAL: Final = ("tuple_pattern", "slice_pattern", "or_pattern", "struct_pattern")
_WRAPPING: Final = frozenset({"Some", "Ok"})


def variables(pattern: Node, holds: Held, references: References) -> Iterator[tuple[str, Held]]:
    """Each variable, and what it holds if the pattern is matched with ``holds``."""
    todo: list[tuple[Node, Held]] = [(pattern, holds)]
    while todo:
        node, held = todo.pop()
        kind = node.type
        parts = node.named_children
        if kind in ("identifier", "shorthand_field_identifier"):
            name = name_of(node)
            if not name[:1].isupper():  # else it is a constant or a variant
                yield name, held
        elif kind in _SAME:
            inner = [part for part in parts if part.type != "mutable_specifier"]
            todo.extend((part, held) for part in inner[:1])
        elif kind == "captured_pattern":
            todo.extend((part, held if at == 0 else None) for at, part in enumerate(parts))
        elif kind == "tuple_struct_pattern":
            wraps = text(node.child_by_field_name("type")) in _WRAPPING
            inside = references.unwrapped(held) if wraps else None
            todo.extend((part, inside) for part in reversed(parts[1:]))
        elif kind == "field_pattern":
            field = node.child_by_field_name("pattern") or node.child_by_field_name("name")
            if field is not None:
                todo.append((field, None))
        elif kind in _SEVERAL:
            todo.extend((part, None) for part in reversed(parts))
