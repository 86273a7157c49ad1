"""Declarations of one name in one place, of which one alone is there when the code runs.

Which one may depend on a condition that nobody can know here: then a call of that name means none
of them. All of them stay declarations; they are not found by their name any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import end_line_of, line_of
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts, Ref, Step

_NOWHERE: Final = Ref("opaque", ())


class Conditions:
    """Where the walk is inside of something that may not happen. Nodes come in their order."""

    def __init__(self) -> None:
        self._around: list[tuple[int, int]] = []

    def enter(self, node: Node) -> None:
        """From the first line of ``node`` to the last there is a condition."""
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
    """Let nothing find it by its name. (It has a receiver that does not exist.)"""
    declaration.receiver = _NOWHERE


def obscure(facts: FileFacts, parent: int, name: str) -> None:
    """Let a name mean something inside of ``parent`` of which nothing is known."""
    if parent == FILE:
        facts.variables[name] = _NOWHERE
        return
    around = facts.declarations[parent]
    if around.kind == "class":
        # Unlike a field of which nothing is known, this hides the methods of classes above, too.
        around.fields[name] = Ref("opaque", (Step(name),))
    else:
        place = around.locals if around.kind == "function" else around.fields
        place[name] = _NOWHERE


def leave_open(facts: FileFacts, alternatives: Iterable[int]) -> None:
    """Let the name that these declarations share mean none of them."""
    for index in alternatives:
        declared = facts.declarations[index]
        if declared.receiver is None:
            obscure(facts, declared.parent, declared.name)
        hide(declared)
