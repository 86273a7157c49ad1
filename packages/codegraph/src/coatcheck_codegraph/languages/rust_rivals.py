"""Items of one name in one place of a Rust file: ``#[cfg]`` keeps one of them, or traits do.

``impl From<A> for X`` and ``impl From<B> for X`` both have a ``from``; which of them ``X::from``
means depends on types that are not known here. A function of the type itself comes before those
of its traits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import text
from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages.rivals import hide, leave_open, obscure

_COMMENTS: Final = ("line_comment", "block_comment")


class RustRivals:
    """The items of one file. ``is_conditional`` is whether there is a ``#[cfg]`` before the one
    that the walk has come to."""

    def __init__(self, facts: FileFacts) -> None:
        self._facts = facts
        self._items: dict[tuple[int, bool, str], list[int]] = {}
        self._conditional: set[int] = set()
        self._of_traits: set[int] = set()
        self._follows_condition = False
        self.is_conditional = False

    def is_attribute(self, node: Node) -> bool:
        """Take note of a node, before all else; whether it is but an attribute of the next."""
        if node.type == "attribute_item":
            attribute = node.named_children[0] if node.named_child_count else None
            if attribute is not None and attribute.named_child_count:
                self._follows_condition |= text(attribute.named_children[0]) == "cfg"
            return True
        if node.type not in _COMMENTS:
            self.is_conditional, self._follows_condition = self._follows_condition, False
        return False

    def declared(self, index: int, *, is_of_trait: bool = False) -> None:
        """The item is declared that the walk has come to."""
        declared = self._facts.declarations[index]
        key = (declared.parent, declared.kind == "function", declared.qualified)
        self._items.setdefault(key, []).append(index)
        if self.is_conditional:
            self._conditional.add(index)
        if is_of_trait:
            self._of_traits.add(index)

    def settle(self) -> None:
        """When the file was walked: let no name mean what may not be there."""
        classes = {
            (declared.parent, declared.name): index
            for index, declared in enumerate(self._facts.declarations)
            if declared.kind == "class"
        }
        for items in self._items.values():
            if len(items) == 1:
                continue
            if not self._conditional.isdisjoint(items):
                self._leave_open(items, classes)
            elif self._facts.declarations[items[0]].receiver is not None:
                own = [index for index in items if index not in self._of_traits]
                if len(own) == 1:
                    for index in self._of_traits.intersection(items):
                        hide(self._facts.declarations[index])
                else:
                    self._leave_open(items, classes)

    def _leave_open(self, items: list[int], classes: Mapping[tuple[int, str], int]) -> None:
        first = self._facts.declarations[items[0]]
        if first.receiver is not None and first.receiver.steps:
            owner = classes.get((first.parent, first.receiver.steps[-1].name))
            if owner is not None:
                obscure(self._facts, owner, first.name)
        leave_open(self._facts, items)
