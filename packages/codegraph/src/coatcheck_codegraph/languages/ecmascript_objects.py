"""Objects that have a name: those that hold functions are as classes are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of
from coatcheck_codegraph.facts import Ref, Step
from coatcheck_codegraph.languages.ecmascript_chains import key_of
from coatcheck_codegraph.languages.ecmascript_functions import FUNCTIONS, Functions
from coatcheck_codegraph.languages.ecmascript_references import References
from coatcheck_codegraph.languages.ecmascript_scopes import Scope
from coatcheck_codegraph.languages.ecmascript_walk import EMPTY, THIS, Visit, Walk

Keep = Callable[[str, Ref], None]


class Objects:
    """Declares objects, and the functions that they hold."""

    def __init__(self, walk: Walk, references: References, functions: Functions) -> None:
        self._walk = walk
        self._references = references
        self._functions = functions

    def declare(self, name: str, node: Node, bases: Iterable[Ref] = ()) -> None:
        """Declare an object as a class, and walk its inside."""
        index = self._walk.builder.declare("class", name, node, bases=bases)
        self._walk.enter(node, Scope(plain=False, function=False), declaration=index, this=None)
        self.properties(node, self._walk.builder.field)

    def properties(self, node: Node, keep: Keep | None, receiver: Ref | None = None) -> None:
        """Declare the functions that an object holds, and keep what else its names tell.

        With a receiver, they are the functions of that: ``X.prototype = {}``,
        ``module.exports = {}``.
        """
        self._walk.walk_by(
            visit
            for child in node.named_children
            for visit in self._property(child, keep, receiver)
        )

    def _property(
        self, node: Node, keep: Keep | None, receiver: Ref | None
    ) -> Iterator[tuple[Visit, Node]]:
        kind = node.type
        if kind == "pair":
            key = key_of(node.child_by_field_name("key"))
            value = node.child_by_field_name("value")
            if value is None:
                return
            if key is not None and value.type in FUNCTIONS:
                yield self._function(key, receiver, node), value
            elif key is not None and receiver is None and holds_functions(value):
                yield self._object(key), value
            else:
                held = None if key is None else self._references.value(value)
                if keep is not None and key is not None and held is not None:
                    keep(key, held)
                yield self._any, node
        elif kind == "method_definition":
            key = key_of(node.child_by_field_name("name"))
            yield (
                (self._functions.anonymous, node)
                if key is None
                else (self._function(key, receiver, node), node)
            )
        elif kind == "shorthand_property_identifier":
            name = name_of(node)
            meaning = self._walk.scopes.meaning(name)
            if keep is not None and isinstance(meaning, str):
                keep(name, Ref("name", (Step(meaning),)))
        elif kind not in EMPTY:
            yield self._any, node

    def _any(self, node: Node) -> None:
        self._walk.walk([node])

    def _function(self, name: str, receiver: Ref | None, place: Node) -> Visit:
        def declare(node: Node) -> None:
            this = None if node.type == "arrow_function" else THIS
            self._functions.declare(
                name,
                node,
                receiver=receiver,
                this=this,
                static=True,
                is_member=True,
                place=place,
            )

        return declare

    def _object(self, name: str) -> Visit:
        return lambda node: self.declare(name, node)


def holds_functions(node: Node) -> bool:
    """Whether an expression is an object that has methods."""
    if node.type != "object":
        return False
    for child in node.named_children:
        if child.type == "method_definition":
            return True
        if child.type == "pair":
            value = child.child_by_field_name("value")
            if value is not None and value.type in FUNCTIONS:
                return True
    return False
