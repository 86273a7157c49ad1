"""Collects the facts of one file during the walk of its syntax tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.facts import (
    FILE,
    Binding,
    Call,
    Declaration,
    FileFacts,
    Import,
    Kind,
    Ref,
    Step,
)

_NAME_CHARACTERS_MAX: Final = 200
_QUALIFIED_CHARACTERS_MAX: Final = 1000
"""Code may nest declarations without limit; the memory for their names must have one."""
SIGNATURE_CHARACTERS_MAX: Final = 500
_NAMELESS: Final = "(module)"


def text(node: Node | None) -> str:
    """A node's text. For names and types only: nothing else may leave the parser."""
    content = None if node is None else node.text  # a new object on every access
    return "" if content is None else content.decode("utf-8", "replace")


def name_of(node: Node | None) -> str:
    """A node's text as a name, cut at a length that no sane name has."""
    written = text(node)
    if written.isidentifier() and len(written) <= _NAME_CHARACTERS_MAX:
        return written
    return " ".join(written.split())[:_NAME_CHARACTERS_MAX]


def line_of(node: Node) -> int:
    return int(node.start_point[0]) + 1


def end_line_of(node: Node) -> int:
    row, column = node.end_point
    # A node that ends with its line break ends at the beginning of the next line.
    return max(line_of(node), int(row) + (1 if column else 0))


def named(*names: str, called: bool = False, is_type: bool = False) -> Ref:
    """A reference that consists of names; ``called``: the last one is called."""
    last = len(names) - 1
    steps = tuple(Step(name, called and at == last) for at, name in enumerate(names))
    return Ref("name", steps, is_type)


def _is_module_name(module: str) -> bool:
    """Whether a module can have this name, in any language: no blanks, not longer than a name."""
    return len(module) <= _NAME_CHARACTERS_MAX and not any(map(str.isspace, module))


class Builder:
    """The facts so far, and the position of the walk in the file."""

    def __init__(self, path: str, language: str) -> None:
        self.facts = FileFacts(path, language, 0)
        self._around: list[int] = []

    # The position of the walk

    @property
    def here(self) -> int:
        """The index of the innermost declaration around this place, or FILE."""
        return self._around[-1] if self._around else FILE

    @property
    def here_declared(self) -> Declaration | None:
        return self.facts.declarations[self.here] if self._around else None

    def innermost(self, kind: Kind) -> Declaration | None:
        """The innermost declaration of a kind around here."""
        for index in reversed(self._around):
            if self.facts.declarations[index].kind == kind:
                return self.facts.declarations[index]
        return None

    @contextmanager
    def inside(self, index: int) -> Iterator[None]:
        """Facts that are added in this context are inside the declaration ``index``."""
        self.enter(index)
        try:
            yield
        finally:
            self.leave()

    def enter(self, index: int) -> None:
        """As ``inside``, until ``leave``: for a walk that keeps an explicit stack."""
        self._around.append(index)

    def leave(self) -> None:
        self._around.pop()

    # Adding facts

    def declare(
        self,
        kind: Kind,
        name: str,
        node: Node,
        *,
        signature: str = "",
        bases: Iterable[Ref] = (),
        receiver: Ref | None = None,
        returns: Ref | None = None,
        static: bool = False,
        forward: bool = False,
        partial: bool = False,
        parameters: tuple[int, int] | None = None,
    ) -> int:
        """Add a declaration; returns its index. Walk its inside within ``inside(index)``."""
        if kind == "namespace" and not _is_module_name(name):
            name = _NAMELESS
        around = self.here_declared
        qualified = name if around is None else f"{around.qualified}.{name}"
        if receiver is not None and around is None:
            qualified = ".".join([*(step.name for step in receiver.steps), name])
        self.facts.declarations.append(
            Declaration(
                kind,
                name,
                qualified[:_QUALIFIED_CHARACTERS_MAX],
                line_of(node),
                end_line_of(node),
                self.here,
                " ".join(signature.split())[:SIGNATURE_CHARACTERS_MAX],
                tuple(bases),
                receiver,
                returns,
                {},
                {},
                static,
                forward,
                partial,
                parameters,
            )
        )
        return len(self.facts.declarations) - 1

    def imports(
        self,
        node: Node,
        module: str,
        bindings: Iterable[Binding] = (),
        *,
        kind: str = "",
        exported: bool = False,
    ) -> None:
        """Note an import. Text that is no module's name is left out: a literal may be anything."""
        if not _is_module_name(module):
            return
        self.facts.imports.append(
            Import(line_of(node), module, tuple(bindings), kind, exported, self.here)
        )

    def call(self, node: Node, callee: Ref, arguments: int = -1) -> None:
        self.facts.calls.append(Call(line_of(node), self.here, callee, arguments))

    def variable(self, name: str, type_or_value: Ref) -> None:
        """A variable or parameter of the innermost function, or of the file, and what it holds.

        The first word on a name counts: what is assigned later may be anything.
        """
        function = self.innermost("function")
        place = self.facts.variables if function is None else function.locals
        place.setdefault(name, type_or_value)

    def field(self, name: str, type_or_value: Ref) -> None:
        """An attribute of the innermost class, and what it holds."""
        around = self.innermost("class")
        if around is not None:
            around.fields.setdefault(name, type_or_value)


# Types and parameters as they are written, without what may not leave the parser.

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
