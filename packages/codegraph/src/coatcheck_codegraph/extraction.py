"""Walks a syntax tree of any depth, with the names in scope at each place.

Only declarations are entered by recursion, up to a bound; everything inside a declaration is walked
with an explicit stack. So neither a chain of a thousand calls nor a hostile file overflows the
stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import Builder, line_of, text
from coatcheck_codegraph.facts import Ref, Step

DECLARATIONS_DEEP_MAX: Final = 40
"""The nesting depth of declarations; deeper ones are left out."""

STEPS_MAX: Final = 32
"""The number of names in a reference; of a longer chain only the end is kept, without its start."""

UNKNOWN: Final = Ref("opaque", ())
"""The type of a variable that is only known to exist: it hides outer variables of its name."""

_PLAIN_TYPE: Final = re.compile(r"[\w\s.,<>\[\]?&|*:\\()]*", re.ASCII)

Handler = Callable[[Node], Sequence[Node]]
"""Records the facts of a node, and returns the nodes inside it to visit next."""


class Extraction:
    """The walk of one file. A language has handlers for types of nodes; other nodes are skipped
    over, and the walk continues inside them."""

    def __init__(self, builder: Builder, handlers: Mapping[str, Handler]) -> None:
        self.builder = builder
        self._handlers = handlers
        self._bounds: list[Mapping[str, Ref]] = []
        self._renamed: list[dict[str, str]] = [{}]
        self._numbered: dict[tuple[int, str], dict[Ref, str]] = {}
        """By table of variables and name: the unique name for each value."""

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
        """Walk the inside of the declaration ``index``, which has the type parameters ``bounds``,
        each with its known type."""
        if len(self._bounds) >= DECLARATIONS_DEEP_MAX:
            return
        self._bounds.append(bounds or {})
        self._renamed.append({})
        with self.builder.inside(index):
            self.walk(nodes)
        self._renamed.pop()
        self._bounds.pop()

    def bound(self, name: str) -> Ref | None:
        """The known type of the type parameter of that name in scope; None if there is none."""
        for bounds in reversed(self._bounds):
            if name in bounds:
                return bounds[name]
        return None

    # Variables of blocks: two blocks of a function may use one name for two things.

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
        """The name under which a declaration's variables have the ``name`` of this place."""
        for renamed in reversed(self._renamed):
            if name in renamed:
                return renamed[name]
        return name


def nothing(_node: Node) -> Sequence[Node]:
    """The handler of nodes whose inside is of no interest."""
    return ()


def constructing(made: Ref) -> Ref:
    """A construction of an instance of a type."""
    if not made.steps:
        return made
    last = len(made.steps) - 1
    steps = (Step(step.name, at == last, of_type=True) for at, step in enumerate(made.steps))
    return Ref(made.base, tuple(steps), is_type=True)


def type_text(node: Node | None, left_out: frozenset[str]) -> str:
    """A type as written, without comments, literals and nodes of the types ``left_out``."""
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
