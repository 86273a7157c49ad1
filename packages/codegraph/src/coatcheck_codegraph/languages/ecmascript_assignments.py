"""Variables and assignments of JavaScript: the names on the left get the values on the right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of
from coatcheck_codegraph.facts import FILE, Binding, Ref, Step
from coatcheck_codegraph.languages.alternatives import leave_open
from coatcheck_codegraph.languages.ecmascript_classes import Classes, Objects, holds_functions
from coatcheck_codegraph.languages.ecmascript_functions import FUNCTIONS, Functions, Prototypes
from coatcheck_codegraph.languages.ecmascript_references import (
    EXPORTS,
    UNKNOWN,
    References,
    chain_of,
    key_of,
    specifier_of,
)
from coatcheck_codegraph.languages.ecmascript_types import bound_names, type_ref
from coatcheck_codegraph.languages.ecmascript_walk import THIS, Scope, Walk

_Kind = Literal["local", "var", "set", "exports", "this", "prototype", "member", "other"]


@dataclass(slots=True)
class AssignmentTarget:
    """What is assigned to: a new variable (``local``, ``var``), one that is there (``set``), an
    export (without a name: all of them), an attribute of ``this``, a prototype, a ``member`` of
    ``owner``."""

    kind: _Kind
    name: str = ""
    owner: Ref | None = None


_OTHER: Final = AssignmentTarget("other")
_VARIABLES: Final = ("local", "var", "set")


class Assignments:
    """Gives names to functions, classes, objects and other values."""

    def __init__(
        self,
        walk: Walk,
        references: References,
        prototypes: Prototypes,
        functions: Functions,
        classes: Classes,
        objects: Objects,
    ) -> None:
        self._walk = walk
        self._references = references
        self._prototypes = prototypes
        self._functions = functions
        self._classes = classes
        self._objects = objects
        self._later: dict[str, dict[str, Ref]] = {}
        self._reassigned: set[tuple[int, str]] = set()

    # Variables

    def variables(self, node: Node) -> None:
        """``const a = 1, b = 2``."""
        visit = self._var if node.type == "variable_declaration" else self._let
        self._walk.walk_by(
            (visit, child) for child in node.named_children if child.type == "variable_declarator"
        )

    def _var(self, node: Node) -> None:
        self._variable(node, "var")

    def _let(self, node: Node) -> None:
        self._variable(node, "local")

    def _variable(self, node: Node, kind: Literal["local", "var"]) -> None:
        pattern = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if pattern is None:
            return
        if pattern.type != "identifier":
            self._destructure(pattern, value, hoisted=kind == "var")
            self._walk.walk([] if value is None else [value])
            return
        name = name_of(pattern)
        stated = type_ref(node.child_by_field_name("type"), self._walk.scopes)
        if value is None and stated is None:
            if kind == "local" or not self._walk.scopes.has(name):
                key = self._walk.scopes.bind(name, hoisted=kind == "var", certain=False)
                function = self._walk.builder.innermost("function")
                place = self._walk.facts.variables if function is None else function.locals
                self._later[key] = place
        elif value is None:
            self._hold(name, stated, hoisted=kind == "var")
        elif stated is None or value.type in FUNCTIONS:
            targets = [AssignmentTarget(kind, name)]
            while value is not None and value.type == "assignment_expression":
                targets.append(self._target(value.child_by_field_name("left")))
                value = value.child_by_field_name("right")
            self.assign(targets, value)
        elif holds_functions(value):
            self._walk.declare_name(name)
            self._objects.declare(name, value, (stated,))
        else:
            self._hold(name, stated, hoisted=kind == "var")
            self._walk.walk([value])

    def _hold(self, name: str, what: Ref | None, *, hoisted: bool = False) -> None:
        """A new variable, and what it holds."""
        if what is None:
            self._walk.scopes.obscure(name, hoisted=hoisted)
        elif what != Ref("name", (Step(name),)):
            self._walk.builder.variable(self._walk.scopes.bind(name, hoisted=hoisted), what)

    def _destructure(self, pattern: Node, value: Node | None, *, hoisted: bool) -> None:
        """``const { a, b: c } = value``."""
        is_call = value is not None and value.type == "call_expression"
        specifier = specifier_of(value) if is_call and value is not None else None
        source = None if specifier is not None else self._references.value(value)
        taken = _taken(pattern) if pattern.type == "object_pattern" else {}
        bindings: list[Binding] = []
        for name in bound_names(pattern):
            remote = taken.get(name)
            if remote is not None and specifier is not None:
                key = self._walk.scopes.bind(name, hoisted=hoisted)
                bindings.append(Binding(key, remote))
            elif remote is not None and source is not None:
                held = Ref(source.base, (*source.steps, Step(remote)))
                self._hold(name, held, hoisted=hoisted)
            else:
                self._walk.scopes.obscure(name, hoisted=hoisted)
        if specifier is not None and value is not None:
            self._references.require(value, specifier, "", bindings)

    # Assignments

    def assignment(self, node: Node) -> None:
        """``a = b.c = value``."""
        targets: list[AssignmentTarget] = []
        value: Node | None = node
        while value is not None and value.type == "assignment_expression":
            left = value.child_by_field_name("left")
            targets.append(self._target(left))
            if left is not None and left.type == "subscript_expression":
                self._walk.walk([left])
            elif left is not None and left.type in ("array_pattern", "object_pattern"):
                for name in bound_names(left):
                    self._set(name, None)
            value = value.child_by_field_name("right")
        self.assign(targets, value)

    def augmented(self, node: Node) -> None:
        """``a ||= value``: what it was, or the other."""
        left = node.child_by_field_name("left")
        if left is not None and left.type == "identifier":
            self._set(name_of(left), None)
        self._walk.children(node)

    def _target(self, node: Node | None) -> AssignmentTarget:
        if node is None:
            return _OTHER
        if node.type == "identifier":
            name = name_of(node)
            if name == "exports" and self._walk.scopes.meaning(name) == name:
                return AssignmentTarget("exports")
            return AssignmentTarget("set", name)
        if node.type != "member_expression":
            return _OTHER
        chain = chain_of(node)
        names = [link.name for link in chain.links]
        if not names or any(link.called for link in chain.links):
            return _OTHER
        if chain.root == "this":
            return AssignmentTarget("this", names[0]) if len(names) == 1 else _OTHER
        if chain.root != "name":
            return _OTHER
        if names[:2] == ["module", "exports"]:
            names = names[1:]
        if names[0] == "exports" and self._walk.scopes.meaning("exports") == "exports":
            return AssignmentTarget("exports", "".join(names[1:])) if len(names) <= 2 else _OTHER
        if len(names) == 2 and names[1] == "prototype":
            return AssignmentTarget("prototype", "", self._references.named(names[0]))
        owner = self._references.of(chain, len(names) - 2)
        if owner.base != "name" or any("@" in step.name for step in owner.steps):
            return _OTHER
        return AssignmentTarget("member", names[-1], owner)

    def assign(self, targets: list[AssignmentTarget], value: Node | None) -> None:
        """Give a value its names, and walk it."""
        while value is not None and value.type == "parenthesized_expression":
            value = value.named_children[0] if value.named_child_count == 1 else None
        if value is None:
            return
        if value.type in FUNCTIONS:
            self._function(targets, value)
        elif value.type == "class":
            self._class(targets, value)
        elif value.type == "object":
            self._object(targets, value)
        else:
            self._value(targets, value)

    def _name_all(self, targets: Iterable[AssignmentTarget], what: Ref | None) -> None:
        """Further names of something that has one."""
        for target in targets:
            if target.kind in ("local", "var"):
                self._hold(target.name, what, hoisted=target.kind == "var")
            elif target.kind == "set":
                self._set(target.name, what)
            elif what is None:
                continue
            elif target.kind == "exports":
                self._export(target.name, what)
            elif target.kind == "this" and self._walk.this == THIS:
                self._prototypes.keep_field(target.name, what)
            elif target.kind == "prototype" and target.owner is not None:
                self._prototypes.extend(target.owner, what)
            elif target.kind == "member" and target.owner is not None:
                self._prototypes.keep_member(target.owner, target.name, what)

    def _set(self, name: str, what: Ref | None) -> None:
        """A value for a variable that is there, perhaps of a function around.

        It is known if it is the first one, or the same again; of a variable that gets another one,
        nothing is.
        """
        scope = self._walk.scopes.holder(name)
        meaning = None if scope is None else scope.names[name]
        if scope is None or not isinstance(meaning, str):
            return
        place = self._place_of(meaning)
        if place is None:
            place = self._later.get(meaning)
        if place is None:
            self._declared_again(scope, name)
            return
        function = self._walk.builder.innermost("function")
        if what is not None and function is not None and function.locals is not place:
            what = self._references.portable(what)
            what = what if what is not None and what.base == "name" else None
        known = place.setdefault(meaning, what or UNKNOWN)
        if known != what and not self._references.keeps_type(known):
            place[meaning] = UNKNOWN

    def _place_of(self, key: str) -> dict[str, Ref] | None:
        """The variables around that have one which is kept as ``key``."""
        declarations = self._walk.facts.declarations
        index = self._walk.builder.here
        while index != FILE:
            if key in declarations[index].locals:
                return declarations[index].locals
            index = declarations[index].parent
        variables = self._walk.facts.variables
        return variables if key in variables else None

    def _declared_again(self, scope: Scope, name: str) -> None:
        """A function or class gets another value, or a module that was imported does."""
        declarations = self._walk.facts.declarations
        here = index = self._walk.builder.here
        while not self._walk.scopes.declares(scope, index, name):
            if index == FILE:
                scope.names[name] = None
                return
            index = declarations[index].parent
        self._reassigned.update(((index, name), (here, name)))

    def conclude(self) -> None:
        """When the file was walked: let a name that was given to several functions mean none."""
        leave_open(
            self._walk.facts,
            [
                index
                for index, declared in enumerate(self._walk.facts.declarations)
                if (declared.parent, declared.name) in self._reassigned
                and declared.receiver is None
            ],
        )

    # By what is assigned

    def _function(self, targets: list[AssignmentTarget], node: Node) -> None:
        first = targets[0]
        rest = targets[1:]
        if first.kind in _VARIABLES:
            self._note_replaced(first)
            self._walk.declare_name(first.name)
            self._functions.declare(first.name, node)
            self._name_all(rest, self._references.named(first.name))
        elif first.kind == "exports" and first.name in ("", "default"):
            name = name_of(node.child_by_field_name("name")) or first.name or "module.exports"
            self._walk.declare_name(name)
            self._functions.declare(name, node)
            self._name_all(targets, self._references.named(name))
        elif first.kind in ("exports", "member"):
            owner = first.owner or EXPORTS
            self._functions.declare(first.name, node, receiver=owner, this=THIS)
            self._name_all(rest, Ref("name", (*owner.steps, Step(first.name))))
        elif first.kind == "this" and self._walk.this == THIS:
            self._own_function(first.name, node)
        else:
            self._functions.anonymous(node)

    def _note_replaced(self, target: AssignmentTarget) -> None:
        """A function or class for a variable that has a value."""
        scopes = self._walk.scopes
        scope = scopes.holder(target.name) if target.kind == "set" else None
        if target.kind == "var" and scopes.has(target.name):
            scope = scopes.holder(target.name)
        if scope is not None and scope.names[target.name] not in self._later:
            self._set(target.name, None)

    def _own_function(self, name: str, node: Node) -> None:
        """``this.f = function () {}``: a method of the class around."""
        around = self._walk.builder.innermost("class")
        if around is None:
            self._functions.anonymous(node)
        else:
            receiver = Ref("name", (Step(around.name),))
            self._functions.declare(name, node, receiver=receiver, this=THIS)

    def _class(self, targets: list[AssignmentTarget], node: Node) -> None:
        first = targets[0]
        own = name_of(node.child_by_field_name("name"))
        if first.kind in _VARIABLES:
            self._note_replaced(first)
            name, rest = first.name, targets[1:]
        else:
            name, rest = own or first.name, targets
        if not name and first.kind == "exports":
            name = "module.exports"
        if not name:
            self._classes.declaration(node)
            return
        self._walk.declare_name(name)
        named = self._references.named(name)
        self._name_all(rest, named)
        if own and own != name:
            self._hold(own, named)
        self._classes.declare(name, node)

    def _object(self, targets: list[AssignmentTarget], node: Node) -> None:
        first = targets[0]
        is_class = holds_functions(node) or first.name in self._prototypes.given_functions
        if first.kind in ("local", "var") and is_class:
            self._walk.declare_name(first.name)
            self._name_all(targets[1:], self._references.named(first.name))
            self._objects.declare(first.name, node)
        elif any(target.kind == "exports" and not target.name for target in targets):
            self._name_all((target for target in targets if target.name), EXPORTS)
            self._objects.properties(node, self._export, EXPORTS)
        elif first.kind == "exports" and (is_class or first.name == "default"):
            self._walk.declare_name(first.name)
            self._objects.declare(first.name, node)
        elif first.kind == "prototype":
            self._objects.properties(node, None, first.owner)
        else:
            self._name_all(targets, None)
            self._walk.walk([node])

    def _export(self, name: str, what: Ref) -> None:
        exports = self._walk.facts.exports
        if exports.setdefault(name, what) != what:
            exports[name] = UNKNOWN

    def _value(self, targets: list[AssignmentTarget], value: Node) -> None:
        first = targets[0]
        is_new = first.kind in ("local", "var")
        specifier = specifier_of(value) if value.type == "call_expression" else None
        if specifier is not None and is_new:
            key = self._walk.scopes.bind(first.name, hoisted=first.kind == "var")
            self._references.require(value, specifier, key, (Binding(key),))
            self._name_all(targets[1:], Ref("name", (Step(key),)))
            return
        made = self._prototypes.made_object(value)
        if made is not None and is_new and first.name in self._prototypes.given_functions:
            self._walk.declare_name(first.name)
            self._walk.builder.declare("class", first.name, value, bases=made)
            self._name_all(targets[1:], self._references.named(first.name))
        elif made and first.kind == "prototype" and first.owner is not None:
            self._prototypes.extend(first.owner, made[0])
        else:
            held = None if made is not None else self._references.value(value)
            if value.type in ("null", "undefined"):
                targets = [target for target in targets if target.kind != "set"]
            self._name_all(targets, held)
        self._walk.walk([value])


def _taken(pattern: Node) -> dict[str, str]:
    """The names that ``{ a, b: c }`` makes, and those of the properties they take."""
    taken: dict[str, str] = {}
    for part in pattern.named_children:
        if part.type == "shorthand_property_identifier_pattern":
            taken[name_of(part)] = name_of(part)
        elif part.type == "pair_pattern":
            key = key_of(part.child_by_field_name("key"))
            value = part.child_by_field_name("value")
            if key is not None and value is not None and value.type == "identifier":
                taken[name_of(value)] = key
    return taken
