"""Walks a syntax tree, however deep, and knows what the names around a place stand for.

Only declarations are entered by recursion, and only so many of them; what is inside of one is
walked by a list of what is yet to be seen. So neither a chain of a thousand calls nor a file made
to overflow a stack does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import Builder, line_of, text
from coatcheck_codegraph.facts import Ref, Step

DECLARATIONS_DEEP_MAX: Final = 40
"""Declarations inside of declarations; what is nested deeper is left out."""

STEPS_MAX: Final = 32
"""Names in one reference; of a longer chain only the end is kept, its beginning unknown."""

UNKNOWN: Final = Ref("opaque", ())
"""The type of a variable that is known to exist, and no more: it hides others of its name."""

_PLAIN_TYPE: Final = re.compile(r"[\w\s.,<>\[\]?&|*:\\()]*", re.ASCII)

Handler = Callable[[Node], Sequence[Node]]
"""Notes what a node says, and returns those inside of it that are to be seen, too."""


class Extraction:
    """One file's walk. Languages give handlers by the type of node; others are passed through."""

    def __init__(self, builder: Builder, handlers: Mapping[str, Handler]) -> None:
        self.builder = builder
        self._handlers = handlers
        self._bounds: list[Mapping[str, Ref]] = []
        self._renamed: list[dict[str, str]] = [{}]
        self._numbered: dict[tuple[int, str], dict[Ref, str]] = {}
        """By the variables that a name is among: what it holds, and as which of that name."""

    def walk(self, nodes: Iterable[Node]) -> None:
        pending = [*nodes]
        pending.reverse()
        handlers = self._handlers
        while pending:
            node = pending.pop()
            handler = handlers.get(node.type)
            if handler is not None:
                inside = handler(node)
            elif node.named_child_count:
                inside = node.named_children
            else:
                continue
            if inside:
                pending += inside[::-1]

    def inside(
        self, index: int, nodes: Iterable[Node], bounds: Mapping[str, Ref] | None = None
    ) -> None:
        """Walk what belongs to the declaration ``index``, which has the type parameters ``bounds``,
        each with the type that it is known to have."""
        if len(self._bounds) >= DECLARATIONS_DEEP_MAX:
            return
        self._bounds.append(bounds or {})
        self._renamed.append({})
        with self.builder.inside(index):
            self.walk(nodes)
        self._renamed.pop()
        self._bounds.pop()

    def bound(self, name: str) -> Ref | None:
        """What is known of a type parameter of that name around here; None if there is none."""
        for bounds in reversed(self._bounds):
            if name in bounds:
                return bounds[name]
        return None

    # Variables of blocks: two blocks of a function may give one name to two things.

    def local(self, name: str, held: Ref | None) -> None:
        """From here on in this function, ``name`` is a variable that holds ``held``."""
        around = self.builder.innermost("function")
        known = self.builder.facts.variables if around is None else around.locals
        held = held or UNKNOWN
        numbered = self._numbered.setdefault((id(known), name), {})
        if not numbered:
            numbered[known.setdefault(name, held)] = name
        unique = numbered.get(held)
        if unique is None:
            unique = numbered[held] = f"{name}#{len(numbered) + 1}"
            known[unique] = held
        self._renamed[-1][name] = unique

    def local_name(self, name: str) -> str:
        """The name by which the variables of a declaration have what ``name`` is here."""
        for renamed in reversed(self._renamed):
            if name in renamed:
                return renamed[name]
        return name


def nothing(_node: Node) -> Sequence[Node]:
    """The handler of what holds nothing that is to be seen."""
    return ()


def constructing(made: Ref) -> Ref:
    """To make an instance of a type."""
    if not made.steps:
        return made
    last = len(made.steps) - 1
    steps = (Step(step.name, at == last, of_type=True) for at, step in enumerate(made.steps))
    return Ref(made.base, tuple(steps), is_type=True)


def type_text(node: Node | None, left_out: frozenset[str]) -> str:
    """A type as it is written, without comments, literals and nodes of the types ``left_out``."""
    if node is None:
        return ""
    plain = text(node)
    if _PLAIN_TYPE.fullmatch(plain) and not node.has_error:
        return " ".join(plain.split())
    words: list[str] = []
    pending = [node]
    while pending:
        part = pending.pop()
        if part.type in left_out or part.is_extra or part.is_error or "literal" in part.type:
            continue
        if part.child_count:
            pending.extend(reversed(part.children))
        else:
            words.append(text(part))
    joined = " ".join(words)
    return re.sub(r"\s*([.,<>\[\]?|&*:\\()])\s*", r"\1", joined).replace(",", ", ")


def lines_in(root: Node) -> int:
    """The number of lines of a file."""
    row, column = root.end_point
    return max(line_of(root), int(row) + (1 if column else 0))
