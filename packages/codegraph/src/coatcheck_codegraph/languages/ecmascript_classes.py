"""JavaScript's classes, interfaces, enums, types and namespaces; objects with functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of
from coatcheck_codegraph.facts import Ref, Step
from coatcheck_codegraph.languages.ecmascript_functions import FUNCTIONS, Functions
from coatcheck_codegraph.languages.ecmascript_references import References, key_of, string_of
from coatcheck_codegraph.languages.ecmascript_types import type_ref
from coatcheck_codegraph.languages.ecmascript_walk import EMPTY, THIS, Scope, Visit, Walk

# Objects that have a name: those that hold functions are as classes are.

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


_FIELDS: Final = frozenset({"field_definition", "public_field_definition"})
_SIGNATURES: Final = frozenset({"abstract_method_signature", "method_signature"})


class Classes:
    """Declares classes and the like, with their members, fields and bases."""

    def __init__(self, walk: Walk, references: References, functions: Functions) -> None:
        self._walk = walk
        self._references = references
        self._functions = functions

    def declaration(self, node: Node) -> None:
        """``class A {}``. One without a name is as an anonymous function: what it calls, the code
        around calls."""
        name = name_of(node.child_by_field_name("name"))
        if name:
            self._walk.declare_name(name)
            self.declare(name, node)
        else:
            self._walk.enter(node, Scope(plain=False, function=True), this=None, returning=None)
            self._walk.children(node)

    def declare(self, name: str, node: Node) -> None:
        """Declare a class and walk its inside."""
        scope = Scope(plain=False, function=True)
        self._walk.scopes.enter(scope)
        self._functions.bind_type_parameters(node)
        children = node.named_children
        clauses = [child for child in children if child.type == "class_heritage"]
        bases = [base for clause in clauses for base in self._bases(clause)]
        self._walk.scopes.leave()
        index = self._walk.builder.declare("class", name, node, bases=bases)
        self._walk.declared(node, index)
        self._walk.enter(node, scope, declaration=index, this=THIS, returning=None)
        body = node.child_by_field_name("body")
        if body is not None:
            self._walk.walk_by((self._member, member) for member in body.named_children)
        self._walk.walk(
            child for child in children if child.type in ("decorator", "class_heritage")
        )

    def _bases(self, clause: Node) -> Iterator[Ref]:
        for part in clause.named_children:
            if part.type == "implements_clause":
                yield from self._types(part)
                continue
            is_clause = part.type == "extends_clause"
            for value in part.named_children if is_clause else [part]:
                base = None if value.type == "type_arguments" else self._references.value(value)
                if base is not None:
                    yield base

    def _types(self, clause: Node) -> Iterator[Ref]:
        for named in clause.named_children:
            stated = type_ref(named, self._walk.scopes)
            if stated is not None:
                yield stated

    # Members

    def _member(self, node: Node) -> None:
        kind = node.type
        if kind == "method_definition":
            self._method(node)
        elif kind in _FIELDS:
            self._field(node)
        elif kind in _SIGNATURES:
            self._method_signature(node)
        elif kind == "class_static_block":
            self._walk.enter(node, Scope(plain=False, function=True))
            self._walk.children(node)
        elif kind not in EMPTY:
            self._walk.walk([node])

    def _method(self, node: Node) -> None:
        name = key_of(node.child_by_field_name("name"))
        if name is None:
            self._functions.anonymous(node, this=THIS)
            return
        words = {child.type for child in node.children}
        around = self._walk.builder.here_declared
        static = "static" in words
        index = self._functions.declare(name, node, this=THIS, static=static, is_member=True)
        returns = self._walk.facts.declarations[index].returns
        if "get" in words and returns is not None and around is not None:
            around.fields.setdefault(name, returns)

    def _field(self, node: Node) -> None:
        name = key_of(node.child_by_field_name("name") or node.child_by_field_name("property"))
        value = node.child_by_field_name("value")
        if name is not None and value is not None and value.type in FUNCTIONS:
            static = any(child.type == "static" for child in node.children)
            self._functions.declare(
                name, value, this=THIS, static=static, is_member=True, place=node
            )
            return
        if name is not None:
            stated = type_ref(node.child_by_field_name("type"), self._walk.scopes)
            held = stated or self._references.value(value)
            if held is not None and held != Ref("self", (Step(name),)):
                self._walk.builder.field(name, held)
        self._walk.children(node)

    def _method_signature(self, node: Node) -> None:
        name = key_of(node.child_by_field_name("name"))
        index = None if name is None else self._functions.overload(name, node)
        if name is not None and index is not None:
            returns = self._walk.facts.declarations[index].returns
            if returns is not None and any(child.type == "get" for child in node.children):
                self._walk.builder.field(name, returns)

    # Types

    def interface(self, node: Node) -> None:
        """``interface A extends B {}``."""
        name = name_of(node.child_by_field_name("name"))
        if not name:
            return
        scope = Scope(plain=False, function=False)
        self._walk.scopes.enter(scope)
        self._functions.bind_type_parameters(node)
        bases = [
            base
            for clause in node.named_children
            if clause.type == "extends_type_clause"
            for base in self._types(clause)
        ]
        self._walk.scopes.leave()
        index = self._walk.builder.declare("class", name, node, bases=bases)
        self._walk.enter(node, scope, declaration=index, this=THIS)
        body = node.child_by_field_name("body")
        for member in [] if body is None else body.named_children:
            if member.type == "method_signature":
                self._method_signature(member)
            elif member.type == "property_signature":
                key = key_of(member.child_by_field_name("name"))
                stated = type_ref(member.child_by_field_name("type"), self._walk.scopes)
                if key is not None and stated is not None:
                    self._walk.builder.field(key, stated)

    def enum(self, node: Node) -> None:
        """``enum A {}``."""
        name = name_of(node.child_by_field_name("name"))
        if name:
            self._walk.declare_name(name)
            index = self._walk.builder.declare("class", name, node)
            self._walk.enter(node, Scope(plain=False, function=False), declaration=index)
        self._walk.children(node)

    def alias(self, node: Node) -> None:
        """``type A = B``: what B is, so is A."""
        name = name_of(node.child_by_field_name("name"))
        if name:
            self._walk.scopes.enter(Scope(plain=False, function=False))
            self._functions.bind_type_parameters(node)
            meant = type_ref(node.child_by_field_name("value"), self._walk.scopes)
            self._walk.scopes.leave()
            self._walk.builder.declare("type", name, node, returns=meant)

    def namespace(self, node: Node) -> None:
        """``namespace A.B {}``: what is inside sees its members by their bare names."""
        name = node.child_by_field_name("name")
        if name is None:
            return
        is_module = name.type == "string"
        said = (string_of(name) if is_module else name_of(name)) or ""
        for part in [said] if is_module else said.split("."):
            self._walk.declare_name(part)
            index = self._walk.builder.declare("namespace", part, node)
            self._walk.enter(node, Scope(plain=False, function=True), declaration=index, this=None)
        body = node.child_by_field_name("body")
        children = [] if body is None else body.named_children
        self._walk.hoist(children)
        self._walk.walk(children)
