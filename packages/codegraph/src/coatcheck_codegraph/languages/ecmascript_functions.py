"""Functions of JavaScript: named, anonymous, and those used as classes."""

from __future__ import annotations

import re
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import end_line_of, line_of, name_of, text
from coatcheck_codegraph.facts import Declaration, Ref, Step
from coatcheck_codegraph.languages.alternatives import hide
from coatcheck_codegraph.languages.ecmascript_references import UNKNOWN, Chain, References, argument
from coatcheck_codegraph.languages.ecmascript_types import bound_names, signature, type_ref
from coatcheck_codegraph.languages.ecmascript_walk import SAME, THIS, Scope, Walk

# Classes that are made without the word: functions with a prototype, objects given functions.

_WITH_PROTOTYPE: Final = re.compile(rb"\b([A-Za-z_$][\w$]{0,99})\.prototype\b")
_GIVEN_FUNCTIONS: Final = re.compile(
    rb"\b([A-Za-z_$][\w$]{0,99})\.[\w$]{1,100}\s{0,20}=\s{0,20}"
    rb"(?:[\w$]{1,100}\.[\w$]{1,100}\s{0,20}=\s{0,20}){0,4}"
    rb"(?:async\b\s{0,20})?(?:function\b|\([^()]{0,200}\)\s{0,20}=>|[\w$]{1,100}\s{0,20}=>)"
)
_INHERITING: Final = frozenset(
    {"inherits", "__extends", "_inherits", "setPrototypeOf", "setprototypeof"}
)


class Prototypes:
    """Which names of a file are such classes, and what they extend and hold.

    The source is searched for ``X.prototype`` and ``x.f = function`` before the walk: what a
    function or an object is has to be known where it is declared, and is often said after that.
    """

    def __init__(self, walk: Walk, references: References, source: bytes) -> None:
        self._walk = walk
        self._references = references
        self._by_name: dict[str, Declaration] = {}
        self._known = 0
        self.with_prototype = {found.decode() for found in _WITH_PROTOTYPE.findall(source)}
        self.given_functions = {found.decode() for found in _GIVEN_FUNCTIONS.findall(source)}

    def extend(self, child: Ref, base: Ref) -> None:
        """What is named ``child`` inherits from ``base``."""
        declared = self._declared(child)
        if declared is not None and base != child and base not in declared.bases:
            declared.bases = (*declared.bases, base)

    def note_inheritance(self, chain: Chain) -> None:
        """``util.inherits(A, B)`` and its like."""
        link = chain.links[-1] if chain.links else None
        if link is None or link.name not in _INHERITING or link.arguments is None:
            return
        given = link.arguments.named_children
        if len(given) == 2:
            child, base = map(self._references.value, given)
            if child is not None and base is not None:
                self.extend(child, base)

    def made_object(self, value: Node) -> tuple[Ref, ...] | None:
        """``Object.create(X.prototype)``: an object, and what it extends."""
        if value.type != "call_expression":
            return None
        if text(value.child_by_field_name("function")) != "Object.create":
            return None
        base = self._references.value(argument(value, 0))
        return () if base is None else (base,)

    # What they hold

    def keep_member(self, owner: Ref, name: str, what: Ref) -> None:
        """``X.name = what``."""
        declared = self._declared(owner)
        if declared is not None and what.base == "name" and "@" not in what.steps[0].name:
            self._keep(declared.fields, name, what)

    def keep_field(self, name: str, what: Ref) -> None:
        """``this.name = what``."""
        held = self._references.portable(what)
        if held is None or held == Ref("self", (Step(name),)):
            return
        function = self._walk.builder.innermost("function")
        owner = None
        if function is not None and function.receiver is not None:
            owner = self._declared(function.receiver)
        owner = owner or self._walk.builder.innermost("class")
        if owner is not None:
            self._keep(owner.fields, name, held)

    def _keep(self, fields: dict[str, Ref], name: str, what: Ref) -> None:
        known = fields.setdefault(name, what)
        if known != what and not self._references.keeps_type(known):
            fields[name] = UNKNOWN

    def _declared(self, ref: Ref) -> Declaration | None:
        """The class or function that a name stands for, if this file has declared it by now."""
        if ref.base != "name" or len(ref.steps) != 1 or ref.steps[0].called:
            return None
        declarations = self._walk.facts.declarations
        for at in range(self._known, len(declarations)):
            declared = declarations[at]
            if declared.receiver is None and declared.kind in ("class", "function"):
                self._by_name[declared.name] = declared
        self._known = len(declarations)
        return self._by_name.get(ref.steps[0].name)


# Functions: those with a name are declared; those without belong to the declaration around.

FUNCTIONS: Final = frozenset({"arrow_function", "function_expression", "generator_function"})
"""Expressions that are functions."""

_FIELD_MODIFIERS: Final = frozenset({"accessibility_modifier", "override_modifier", "readonly"})
_NOTHING: Final = frozenset({"null", "undefined"})
_UNKNOWN: Final = "unknown"


class Functions:
    """Declares functions, and reads their parameters and what they return."""

    def __init__(self, walk: Walk, references: References, prototypes: Prototypes) -> None:
        self._walk = walk
        self._references = references
        self._prototypes = prototypes
        self._overloads: dict[tuple[int, str], int] = {}
        self._returned: dict[int, Ref | None] = {}
        self._declared_in: dict[tuple[Scope, str], int] = {}

    # With a name

    def declaration(self, node: Node) -> None:
        """``function f() {}``."""
        name = name_of(node.child_by_field_name("name"))
        if name:
            self._walk.declare_name(name)
            scope = self._walk.scopes.innermost
            self._replace(name, scope, self.declare(name, node))
        else:
            self.anonymous(node)

    def _replace(self, name: str, scope: Scope, index: int) -> None:
        """Of several functions of one name in one block, the last is meant from the beginning."""
        declarations = self._walk.facts.declarations
        if declarations[index].name != name:
            index = declarations[index].parent  # a class, with this as its constructor
        before = self._declared_in.get((scope, name))
        if before is not None and before != index:
            hide(declarations[before])
        self._declared_in[(scope, name)] = index

    def declare(
        self,
        name: str,
        node: Node,
        *,
        receiver: Ref | None = None,
        this: Ref | None = None,
        static: bool = False,
        is_member: bool = False,
        place: Node | None = None,
    ) -> int:
        """Declare a function and walk its inside; returns its index.

        One that has a prototype is a class, and its body the constructor. ``place`` is the node
        whose lines count, if not the function's own.
        """
        place = node if place is None else place
        is_arrow = node.type == "arrow_function"
        is_plain = receiver is None and not is_member
        if is_plain and not is_arrow and name in self._prototypes.with_prototype:
            made = self._walk.builder.declare("class", name, place)
            self._walk.enter(node, Scope(plain=False, function=False), declaration=made)
            name, this = "constructor", THIS
        elif is_plain and is_arrow and this is None:
            this = self._walk.this
        scope = Scope(plain=True, function=True)
        stated = node.child_by_field_name("return_type")
        self._walk.scopes.enter(scope)
        self.bind_type_parameters(node)
        returns = type_ref(stated, self._walk.scopes, awaited=True)
        self._walk.scopes.leave()
        index = self._declared(name, node, place, receiver, returns, static=static)
        self._walk.declared(node, index)
        is_inferred = stated is None and not _is_generator(node)
        self._walk.enter(
            node, scope, declaration=index, this=this, returning=index if is_inferred else None
        )
        self._inside(node)
        body = node.child_by_field_name("body")
        if is_inferred and body is not None and body.type != "statement_block":
            self._note_returned(index, self._references.value(body))
        return index

    def _declared(
        self,
        name: str,
        node: Node,
        place: Node,
        receiver: Ref | None,
        returns: Ref | None,
        *,
        static: bool,
    ) -> int:
        """A new declaration, or that of the overloads that this implements."""
        shown = signature(name, node)
        earlier = self._overloads.pop((self._walk.builder.here, name), None)
        if earlier is None or receiver is not None:
            return self._walk.builder.declare(
                "function",
                name,
                place,
                signature=shown,
                receiver=receiver,
                returns=returns,
                static=static,
            )
        declared = self._walk.facts.declarations[earlier]
        declared.line, declared.end_line = line_of(place), end_line_of(place)
        declared.returns = declared.returns or returns
        return earlier

    def overload(self, name: str, node: Node) -> int | None:
        """A function without a body: the first of that name here declares it."""
        key = (self._walk.builder.here, name)
        if key in self._overloads:
            return None
        self._walk.scopes.enter(Scope(plain=False, function=True))
        self.bind_type_parameters(node)
        returns = type_ref(node.child_by_field_name("return_type"), self._walk.scopes, awaited=True)
        self._walk.scopes.leave()
        self._overloads[key] = self._walk.builder.declare(
            "function", name, node, signature=signature(name, node), returns=returns
        )
        return self._overloads[key]

    def signature(self, node: Node) -> None:
        """``function f(a: A): B;``."""
        name = name_of(node.child_by_field_name("name"))
        if name:
            self._walk.declare_name(name)
            self.overload(name, node)

    # Without

    def anonymous(self, node: Node, this: Ref | str | None = _UNKNOWN) -> None:
        """A function that nothing can call by a name."""
        if node.type == "arrow_function":
            this = SAME
        elif this == _UNKNOWN:
            this = None
        self._walk.enter(node, Scope(plain=False, function=True), this=this, returning=None)
        self.bind_type_parameters(node)
        own = node.child_by_field_name("name")
        if own is not None and node.type != "method_definition":
            self._walk.scopes.obscure(name_of(own))
        self._inside(node)

    # Parameters and bodies

    def bind_type_parameters(self, node: Node) -> None:
        """Know the type parameters of a declaration: they stand for what they have to extend."""
        parameters = node.child_by_field_name("type_parameters")
        for parameter in [] if parameters is None else parameters.named_children:
            name = name_of(parameter.child_by_field_name("name"))
            constraint = type_ref(parameter.child_by_field_name("constraint"), self._walk.scopes)
            self._walk.scopes.innermost.names[name] = constraint

    def _inside(self, node: Node) -> None:
        parameters = node.child_by_field_name("parameters")
        if parameters is not None:
            for parameter in parameters.named_children:
                self._parameter(parameter)
        else:
            single = node.child_by_field_name("parameter")
            if single is not None:
                self._walk.scopes.obscure(name_of(single))
        body = node.child_by_field_name("body")
        if body is None:
            return
        if body.type == "statement_block":
            statements = body.named_children
            self._walk.hoist(statements)
            self._walk.walk(statements)
        else:
            self._walk.walk([body])

    def _parameter(self, node: Node) -> None:
        pattern: Node | None = node
        if node.type == "identifier":
            self._walk.scopes.obscure(name_of(node))
            return
        if node.type in ("required_parameter", "optional_parameter"):
            pattern = node.child_by_field_name("pattern")
            stated = type_ref(node.child_by_field_name("type"), self._walk.scopes)
            if stated is not None and pattern is not None:
                if pattern.type == "this":
                    self._walk.this = Ref("name", (Step(self._references.kept("this", stated)),))
                    return
                if pattern.type == "identifier":
                    self._typed_parameter(node, name_of(pattern), stated)
                    return
        for name in [] if pattern is None else bound_names(pattern):
            self._walk.scopes.obscure(name)
        self._walk.walk([node])

    def _typed_parameter(self, node: Node, name: str, stated: Ref) -> None:
        self._walk.builder.variable(self._walk.scopes.bind(name), stated)
        if any(child.type in _FIELD_MODIFIERS for child in node.children):
            self._walk.builder.field(name, stated)  # constructor(private a: A)
        self._walk.walk([node])

    # Results

    def returned(self, node: Node) -> None:
        """``return new Foo()`` tells what a function gives, if all of its returns say the same."""
        children = [child for child in node.named_children if child.type != "comment"]
        index = self._walk.returning
        if index is not None and children and children[0].type not in _NOTHING:
            self._note_returned(index, self._references.value(children[0]))
        self._walk.walk(children)

    def _note_returned(self, index: int, what: Ref | None) -> None:
        self._returned[index] = what if self._returned.get(index, what) == what else None

    def conclude(self) -> None:
        """When the file was walked: say what functions return."""
        for index, what in self._returned.items():
            declared = self._walk.facts.declarations[index]
            if what is not None and declared.returns is None:
                declared.returns = what


def _is_generator(node: Node) -> bool:
    return any(child.type == "*" for child in node.children)
