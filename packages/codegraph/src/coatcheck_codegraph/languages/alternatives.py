"""Alternative declarations of one name, of which only one exists when the code runs.

If a condition decides which one, and the condition cannot be known here, a call of that name means
none of them. All of them stay declarations, but are no longer found by their name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import end_line_of, line_of
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts, Ref, Step

_NOWHERE: Final = Ref("opaque", ())


class Conditions:
    """Tracks whether the walk is inside a condition. Nodes must come in source order."""

    def __init__(self) -> None:
        self._around: list[tuple[int, int]] = []

    def enter(self, node: Node) -> None:
        """Mark the lines of ``node`` as conditional."""
        self._around.append((line_of(node), end_line_of(node)))

    @property
    def innermost(self) -> tuple[int, int]:
        """The lines of the condition that ``hold_for`` has found."""
        return self._around[-1]

    def hold_for(self, node: Node, around: Declaration | None) -> bool:
        """Whether there is a condition between ``node`` and the declaration around it."""
        line = line_of(node)
        while self._around and self._around[-1][1] < line:
            self._around.pop()
        if not self._around:
            return False
        return self._around[-1][0] >= (0 if around is None else around.line)


def hide(declaration: Declaration) -> None:
    """Hide a declaration from look-ups by name. (It gets a receiver that does not exist.)"""
    declaration.receiver = _NOWHERE


def obscure(facts: FileFacts, parent: int, name: str) -> None:
    """Make a name inside ``parent`` mean something unknown."""
    if parent == FILE:
        facts.variables[name] = _NOWHERE
        return
    around = facts.declarations[parent]
    if around.kind == "class":
        # Unlike an unknown field, this also hides inherited methods.
        around.fields[name] = Ref("opaque", (Step(name),))
    else:
        place = around.locals if around.kind == "function" else around.fields
        place[name] = _NOWHERE


def leave_open(facts: FileFacts, alternatives: Iterable[int]) -> None:
    """Make the shared name of these declarations mean none of them."""
    for index in alternatives:
        declared = facts.declarations[index]
        if declared.receiver is None:
            obscure(facts, declared.parent, declared.name)
        hide(declared)
