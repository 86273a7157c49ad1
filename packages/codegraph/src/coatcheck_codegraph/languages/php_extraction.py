"""Extracts the declarations, imports and calls of a PHP file.

Variables keep their ``$``, which distinguishes them from functions and classes; properties have
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import tree_sitter_php
from tree_sitter import Language, Node, Parser

from coatcheck_codegraph.builder import Builder, name_of, named
from coatcheck_codegraph.extraction import (
    STEPS_MAX,
    UNKNOWN,
    Extraction,
    Handler,
    constructing,
    lines_in,
    nothing,
    type_text,
)
from coatcheck_codegraph.facts import Base, Binding, FileFacts, Ref, Step
from coatcheck_codegraph.language import words
from coatcheck_codegraph.languages.alternatives import leave_open

ROOT: Final = "\\"
"""The beginning of a name that is looked up in the global namespace."""

RELATIVE: Final = "namespace\\"
"""The beginning of a name that is looked up in the file's namespace, without its imports."""

_NAMES: Final = frozenset({"name", "qualified_name", "relative_name"})
_CONSTRUCTS: Final = frozenset({"die", "empty", "eval", "exit", "isset", "list", "unset"})
"""Parts of the language that look like functions."""

_ATTRIBUTES: Final = frozenset({"attribute_list"})
_PARAMETERS: Final = frozenset(
    {"simple_parameter", "property_promotion_parameter", "variadic_parameter"}
)
_SKIPPED: Final = words(
    """
    attribute_list boolean comment float integer name named_type null php_tag primitive_type
    qualified_name string string_content text text_interpolation variable_name visibility_modifier
    """
)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_php.language_php()))


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of a PHP file; of what cannot be parsed, as much as can be made out."""
    root = _parser().parse(source).root_node
    facts = PhpExtraction(path).facts_of(root)
    facts.lines = lines_in(root)
    facts.broken = root.has_error
    _leave_rivals_open(facts)
    return facts


def _leave_rivals_open(facts: FileFacts) -> None:
    """Nothing can be declared twice, but under conditions of which one holds."""
    declared: dict[tuple[int, bool, str], list[int]] = {}
    for index, one in enumerate(facts.declarations):
        if one.kind != "namespace" and one.receiver is None:
            key = (one.parent, one.kind == "function", one.name)
            declared.setdefault(key, []).append(index)
    for alternatives in declared.values():
        if len(alternatives) > 1:
            leave_open(facts, alternatives)


class PhpExtraction(Extraction):
    """One PHP file's walk."""

    def __init__(self, path: str) -> None:
        handlers: dict[str, Handler] = dict.fromkeys(_SKIPPED, nothing)
        for kind in ("class", "interface", "trait", "enum"):
            handlers[f"{kind}_declaration"] = self._class
        for kind in ("require", "require_once", "include", "include_once"):
            handlers[f"{kind}_expression"] = self._require
        handlers |= {
            "namespace_use_declaration": self._use,
            "anonymous_class": self._anonymous_class,
            "use_declaration": nothing,
            "property_declaration": self._property,
            "enum_case": self._case,
            "function_definition": self._function,
            "method_declaration": self._function,
            "anonymous_function": self._closure,
            "arrow_function": self._closure,
            "assignment_expression": self._assignment,
            "foreach_statement": self._foreach,
            "catch_clause": self._caught,
            "static_variable_declaration": self._static_variable,
            "function_call_expression": self._call,
            "member_call_expression": self._call,
            "nullsafe_member_call_expression": self._call,
            "scoped_call_expression": self._call,
            "object_creation_expression": self._creation,
        }
        super().__init__(Builder(path, "php"), handlers)
        self._anonymous = 0
        self._given: set[tuple[str, str]] = set()

    # Namespaces: a file belongs to its first; what it declares in others is inside of their names.

    def facts_of(self, root: Node) -> FileFacts:
        pending: list[Node] = []
        opened: Node | None = None
        for child in root.named_children:
            if child.type != "namespace_definition":
                pending.append(child)
                continue
            self._in_namespace(opened, pending)
            body = child.child_by_field_name("body")
            opened, pending = child, []
            if body is not None:
                self._in_namespace(child, body.named_children)
                opened = None
        self._in_namespace(opened, pending)
        return self.builder.facts

    def _in_namespace(self, opened: Node | None, nodes: Sequence[Node]) -> None:
        name = None if opened is None else opened.child_by_field_name("name")
        names = () if name is None else tuple(_parts(name))
        facts = self.builder.facts
        if not facts.declarations and not facts.package:
            facts.package = names
        if opened is None or names == facts.package:
            self.walk(nodes)
        else:
            self.inside(self.builder.declare("namespace", "\\".join(names), opened), nodes)

    # Imports

    def _use(self, node: Node) -> Sequence[Node]:
        kind = name_of(node.child_by_field_name("type"))
        prefix: list[str] = []
        for child in node.named_children:
            if child.type == "namespace_name":
                prefix = _parts(child)
            elif child.type == "namespace_use_group":
                for clause in child.named_children:
                    self._use_one(clause, prefix, kind)
            else:
                self._use_one(child, [], kind)
        return ()

    def _use_one(self, clause: Node, prefix: Sequence[str], kind: str) -> None:
        alias = clause.child_by_field_name("alias")
        kind = name_of(clause.child_by_field_name("type")) or kind
        targets = [child for child in clause.named_children if child.type in _NAMES]
        if not targets:
            return
        names = [*prefix, *_parts(targets[0])]
        local = name_of(alias) if alias is not None else names[-1]
        self.builder.imports(clause, "\\".join(names), (Binding(local),), kind=kind or "class")

    def _require(self, node: Node) -> Sequence[Node]:
        path = _literal_path(node.named_children[0]) if node.named_child_count else None
        if path:
            self.builder.imports(node, path, (Binding("*", "*"),), kind="require")
        return node.named_children

    # Classes

    def _class(self, node: Node) -> Sequence[Node]:
        name = name_of(node.child_by_field_name("name"))
        index = self.builder.declare(
            "class", name, node, signature=name, bases=self._bases_of(node)
        )
        self.inside(index, _inside(node))
        return ()

    def _anonymous_class(self, node: Node) -> Sequence[Node]:
        self._anonymous += 1
        index = self.builder.declare(
            "class", f"class@{self._anonymous}", node, bases=self._bases_of(node)
        )
        self.inside(index, _inside(node))
        return [child for child in node.named_children if child.type == "arguments"]

    def _bases_of(self, node: Node) -> list[Ref]:
        """What a class extends, then its traits, whose methods it has, then what it implements."""
        extended: list[Ref] = []
        promised: list[Ref] = []
        for child in node.named_children:
            if child.type in ("base_clause", "class_interface_clause"):
                found = extended if child.type == "base_clause" else promised
                found += [_reference(part) for part in child.named_children if part.type in _NAMES]
        used = [
            _reference(part)
            for child in _inside(node)
            if child.type == "use_declaration"
            for part in child.named_children
            if part.type in _NAMES
        ]
        return [*extended, *used, *promised]

    def _property(self, node: Node) -> Sequence[Node]:
        held = self._type(node.child_by_field_name("type"))
        values: list[Node] = []
        for child in node.named_children:
            if child.type == "property_element":
                name = name_of(child.child_by_field_name("name")).removeprefix("$")
                if held is not None:
                    self.builder.field(name, held)
                value = child.child_by_field_name("default_value")
                values += [] if value is None else [value]
            elif child.type == "property_hook_list":
                values.append(child)
        return values

    def _case(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        if around is not None:
            name = name_of(node.child_by_field_name("name"))
            around.fields.setdefault(name, named(around.name, is_type=True))
        return ()

    # Functions

    def _function(self, node: Node) -> Sequence[Node]:
        name = name_of(node.child_by_field_name("name"))
        returned = self._type(node.child_by_field_name("return_type"))
        static = any(child.type == "static_modifier" for child in node.named_children)
        index = self.builder.declare(
            "function",
            name,
            node,
            signature=_signature(node, name),
            returns=returned,
            static=static,
        )
        with self.builder.inside(index):
            values = self._parameters(node, promoted=True)
        body = node.child_by_field_name("body")
        self.inside(index, [*values, *([] if body is None else [body])])
        return ()

    def _closure(self, node: Node) -> Sequence[Node]:
        values = self._parameters(node, promoted=False)
        body = node.child_by_field_name("body")
        return [*values, *([] if body is None else [body])]

    def _parameters(self, node: Node, *, promoted: bool) -> list[Node]:
        """Notes the parameters of a function; returns their default values, which may call."""
        values: list[Node] = []
        parameters = node.child_by_field_name("parameters")
        for parameter in [] if parameters is None else parameters.named_children:
            if parameter.type not in _PARAMETERS:
                continue
            name = name_of(parameter.child_by_field_name("name"))
            held = self._type(parameter.child_by_field_name("type"))
            self._variable(name, None if parameter.type == "variadic_parameter" else held)
            if promoted and parameter.type == "property_promotion_parameter" and held is not None:
                self.builder.field(name.removeprefix("$"), held)
            value = parameter.child_by_field_name("default_value")
            values += [] if value is None else [value]
        return values

    # Variables: one for a whole function. Of one that is given different things, nothing is known.

    def _variable(self, name: str, held: Ref | None) -> None:
        around = self.builder.innermost("function")
        known = self.builder.facts.variables if around is None else around.locals
        held = held or UNKNOWN
        if known.setdefault(name, held) != held:
            known[name] = UNKNOWN

    def _assignment(self, node: Node) -> Sequence[Node]:
        left = node.child_by_field_name("left")
        right = node.child_by_field_name("right")
        if left is not None and right is not None and right.type != "null":
            if left.type == "variable_name":
                self._variable(name_of(left), self.value(right))
            elif left.type == "member_access_expression":
                self._assigned_property(left, right)
            elif left.type in ("list_literal", "array_creation_expression"):
                for part in left.named_children:
                    if part.type == "variable_name":
                        self._variable(name_of(part), None)
        return node.named_children

    def _assigned_property(self, left: Node, right: Node) -> None:
        """A property without a declared type is what it is given, if that is always the same."""
        target = left.child_by_field_name("object")
        name = name_of(left.child_by_field_name("name"))
        around = self.builder.innermost("class")
        if target is None or around is None or name_of(target) != "$this":
            return
        if name in around.fields and (around.qualified, name) not in self._given:
            return
        self._given.add((around.qualified, name))
        held = self._given_by(right)
        if around.fields.setdefault(name, held) != held:
            around.fields[name] = UNKNOWN

    def _given_by(self, node: Node) -> Ref:
        """The type of a value that means the same outside of the function that it is in."""
        held = self.value(node)
        function = self.builder.innermost("function")
        if function is not None and node.type == "variable_name":
            held = function.locals.get(name_of(node), UNKNOWN)
        return held if held.is_type else UNKNOWN

    def _foreach(self, node: Node) -> Sequence[Node]:
        for child in node.named_children[1:]:
            for part in child.named_children if child.type == "pair" else (child,):
                if part.type == "variable_name":
                    self._variable(name_of(part), None)
        return node.named_children

    def _caught(self, node: Node) -> Sequence[Node]:
        name = node.child_by_field_name("name")
        types = node.child_by_field_name("type")
        if name is not None and types is not None:
            one = types.named_child_count == 1
            self._variable(name_of(name), self._type(types.named_children[0]) if one else None)
        return node.named_children

    def _static_variable(self, node: Node) -> Sequence[Node]:
        self._variable(name_of(node.child_by_field_name("name")), None)
        return node.named_children

    # Calls

    def _call(self, node: Node) -> Sequence[Node]:
        place = node.child_by_field_name("name") or node.child_by_field_name("function") or node
        if place.type != "name" or name_of(place).lower() not in _CONSTRUCTS:
            self.builder.call(place, self.value(node))
        return node.named_children

    def _creation(self, node: Node) -> Sequence[Node]:
        anonymous = [child for child in node.named_children if child.type == "anonymous_class"]
        if not anonymous:
            self.builder.call(node, self.value(node))
        return node.named_children

    def value(self, node: Node) -> Ref:
        """An expression as far as it is made of names."""
        steps: list[Step] = []
        base: Base = "opaque"
        at: Node | None = node
        while at is not None and len(steps) < STEPS_MAX:
            match at.type:
                case "variable_name":
                    if name_of(at) == "$this":
                        base = "self"
                    else:
                        base = "name"
                        steps.append(Step(name_of(at)))
                    at = None
                case "name" | "qualified_name" | "relative_name" | "relative_scope":
                    base, path = self._path(at)
                    steps += [Step(name) for name in reversed(path)]
                    at = None
                case "function_call_expression":
                    function = at.child_by_field_name("function")
                    if function is None or function.type not in (*_NAMES, "variable_name"):
                        steps.append(Step("", called=True))
                        break
                    path = [name_of(function)]
                    if function.type != "variable_name":
                        path = [step.name for step in _reference(function).steps]
                    steps.append(Step(path[-1], called=True))
                    steps += [Step(name) for name in reversed(path[:-1])]
                    base, at = "name", None
                case "member_call_expression" | "nullsafe_member_call_expression":
                    steps.append(Step(_member_name(at.child_by_field_name("name")), called=True))
                    at = at.child_by_field_name("object")
                case "scoped_call_expression":
                    steps.append(Step(_member_name(at.child_by_field_name("name")), called=True))
                    at = at.child_by_field_name("scope")
                case "member_access_expression" | "nullsafe_member_access_expression":
                    steps.append(Step(_member_name(at.child_by_field_name("name"))))
                    at = at.child_by_field_name("object")
                case "scoped_property_access_expression":
                    name = name_of(at.child_by_field_name("name"))
                    steps.append(Step(name.removeprefix("$")))
                    at = at.child_by_field_name("scope")
                case "class_constant_access_expression":
                    parts = at.named_children
                    steps += [Step(name_of(part)) for part in parts[1:2]]
                    at = parts[0] if parts else None
                case "object_creation_expression":
                    made = self._made_by(at)
                    at = None
                    if made is None:
                        steps.append(Step("new", called=True))
                    else:
                        base = made.base
                        steps += constructing(made).steps[::-1]
                case "parenthesized_expression" | "clone_expression":
                    at = at.named_children[0] if at.named_child_count == 1 else None
                case _:
                    at = None
        if at is not None:
            base = "opaque"
        made_here = node.type == "object_creation_expression" and base == "name"
        return Ref(base, tuple(reversed(steps)), is_type=made_here)

    def _made_by(self, node: Node) -> Ref | None:
        for child in node.named_children:
            if child.type in _NAMES:
                return self._class_named(child)
        return None

    def _path(self, node: Node) -> tuple[Base, list[str]]:
        match name_of(node).lower():
            case "self" | "static":
                return "self", []
            case "parent":
                return "super", []
            case _:
                return "name", [step.name for step in _reference(node).steps]

    # Types

    def _type(self, node: Node | None) -> Ref | None:
        """The class that a type names; None for what has no methods, or is one of several."""
        while node is not None and node.type in ("optional_type", "named_type", "type_list"):
            node = node.named_children[0] if node.named_child_count else None
        if node is not None and node.type == "union_type":
            named_types = [part for part in node.named_children if name_of(part).lower() != "null"]
            return self._type(named_types[0]) if len(named_types) == 1 else None
        return None if node is None or node.type not in _NAMES else self._class_named(node)

    def _class_named(self, node: Node) -> Ref | None:
        around = self.builder.innermost("class")
        match name_of(node).lower():
            case "self" | "static":
                return None if around is None else named(around.name, is_type=True)
            case "parent":
                return around.bases[0] if around is not None and around.bases else None
            case _:
                return _reference(node)


def _reference(node: Node) -> Ref:
    """A class or function by its name, with what of its namespace is written before it."""
    names = _parts(node) or [""]
    if node.type == "qualified_name" and node.children and node.children[0].type == "\\":
        names[0] = ROOT + names[0]
    elif node.type == "relative_name":
        names[0] = RELATIVE + names[0]
    return named(*names, is_type=True)


def _parts(node: Node) -> list[str]:
    """The names of a path."""
    if node.type == "name":
        return [name_of(node)]
    names: list[str] = []
    for child in node.named_children:
        if child.type == "name":
            names.append(name_of(child))
        elif child.type == "namespace_name":
            names += [name_of(part) for part in child.named_children if part.type == "name"]
    return names


def _member_name(node: Node | None) -> str:
    """A member's name; that of one which is only known when it runs is empty."""
    return name_of(node) if node is not None and node.type == "name" else ""


def _inside(node: Node) -> list[Node]:
    body = node.child_by_field_name("body")
    return [] if body is None else body.named_children


def _literal_path(node: Node) -> str | None:
    """The path that a file is included by, relative to this one if it says so with ``./``."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type in ("string", "encapsed_string"):
        contents = node.named_children
        if len(contents) == 1 and contents[0].type == "string_content":
            return name_of(contents[0])
        return None
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    if node.type != "binary_expression" or left is None or right is None:
        return None
    here = name_of(left).replace(" ", "")
    path = _literal_path(right) if right.type != "binary_expression" else None
    if path is None:
        return None
    up = {"__DIR__": ".", "dirname(__FILE__)": ".", "dirname(__DIR__)": ".."}.get(here)
    return None if up is None else f"{up}/{path.lstrip('/')}"


def _signature(node: Node, name: str) -> str:
    parameters = node.child_by_field_name("parameters")
    result = type_text(node.child_by_field_name("return_type"), _ATTRIBUTES)
    written = ", ".join(_written([] if parameters is None else parameters.named_children))
    return f"{name}({written})" + (f": {result}" if result else "")


def _written(parameters: Iterable[Node]) -> Iterable[str]:
    for parameter in parameters:
        if parameter.type in _PARAMETERS:
            kind = type_text(parameter.child_by_field_name("type"), _ATTRIBUTES)
            dots = "..." if parameter.type == "variadic_parameter" else ""
            yield f"{kind} {dots}{name_of(parameter.child_by_field_name('name'))}".strip()
