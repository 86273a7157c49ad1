"""Extracts the declarations, imports and calls of a C# file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

import tree_sitter_c_sharp
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

# Removes preprocessor directives from C# source where they keep it from being parsed.
#
# ``#if`` may stand in the middle of a declaration or an expression, where no grammar expects it.
# Of its branches the first is kept: which of them is compiled, the source does not say.

_DIRECTIVE: Final = re.compile(rb"^[ \t]*#[ \t]*(\w+)")


def without_directives(source: bytes) -> bytes:
    """The source with as many lines, those of directives and of all but first branches empty."""
    kept: list[bytes] = []
    first_branch: list[bool] = []
    for line in source.split(b"\n"):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            kept.append(line if all(first_branch) else b"")
            continue
        kept.append(b"")
        match directive[1]:
            case b"if":
                first_branch.append(True)
            case b"elif" | b"else" if first_branch:
                first_branch[-1] = False
            case b"endif" if first_branch:
                first_branch.pop()
    return b"\n".join(kept)


GLOBAL: Final = "global::"
"""The beginning of a name that is looked up in the global namespace."""

_NAMESPACES: Final = frozenset({"namespace_declaration", "file_scoped_namespace_declaration"})
_NAMES: Final = frozenset({"identifier", "generic_name", "qualified_name", "alias_qualified_name"})
_ATTRIBUTES: Final = frozenset({"attribute_list"})
_SKIPPED: Final = words(
    """
    attribute_list boolean_literal character_literal comment generic_name global_attribute
    identifier implicit_type integer_literal modifier null_literal predefined_type qualified_name
    string_literal type_argument_list typeof_expression verbatim_string_literal
    """
)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_c_sharp.language()))


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of a C# file; of what cannot be parsed, as much as can be made out."""
    root = _parser().parse(source).root_node
    if root.has_error and b"#" in source:
        without = _parser().parse(without_directives(source)).root_node
        root = root if without.has_error and root.type == "compilation_unit" else without
    facts = CSharpExtraction(path).facts_of(root)
    facts.lines = lines_in(root)
    facts.broken = root.has_error
    return facts


class CSharpExtraction(Extraction):
    """The walk of one C# file."""

    def __init__(self, path: str) -> None:
        handlers: dict[str, Handler] = dict.fromkeys(_SKIPPED, nothing)
        for kind in ("class", "struct", "interface", "enum", "record"):
            handlers[f"{kind}_declaration"] = self._class
        for kind in ("operator", "conversion_operator", "indexer", "destructor", "event"):
            handlers[f"{kind}_declaration"] = self._unnamed_member
        handlers |= {
            "using_directive": self._using,
            "namespace_declaration": self._namespace,
            "file_scoped_namespace_declaration": nothing,
            "delegate_declaration": self._delegate,
            "enum_member_declaration": self._enum_member,
            "method_declaration": self._method,
            "local_function_statement": self._method,
            "constructor_declaration": self._constructor,
            "constructor_initializer": self._other_constructor,
            "property_declaration": self._property,
            "field_declaration": self._field,
            "event_field_declaration": self._field,
            "variable_declaration": self._locals,
            "parameter": self._parameter,
            "parameter_list": self._parameters,
            "bracketed_parameter_list": self._parameters,
            "implicit_parameter": self._untyped,
            "tuple_pattern": self._untyped_all,
            "foreach_statement": self._foreach,
            "catch_declaration": self._typed_name,
            "declaration_pattern": self._typed_name,
            "declaration_expression": self._typed_name,
            "recursive_pattern": self._typed_name,
            "from_clause": self._typed_name,
            "invocation_expression": self._call,
            "object_creation_expression": self._creation,
            "implicit_object_creation_expression": self._unnamed_creation,
            "arrow_expression_clause": self._arrow,
        }
        super().__init__(Builder(path, "csharp"), handlers)
        self._main: Node | None = None

    def facts_of(self, root: Node) -> FileFacts:
        children = root.named_children
        namespaces = [child for child in children if child.type in _NAMESPACES]
        # A file belongs to one namespace; what it declares in others is inside of their names.
        self._main = max(namespaces, key=_declared_in, default=None)
        if self._main is not None:
            self.builder.facts.package = _namespace_of(self._main)
        self.walk(children)
        return self.builder.facts

    # Namespaces, and what is imported from them

    def _namespace(self, node: Node) -> Sequence[Node]:
        body = node.child_by_field_name("body")
        inside = () if body is None else body.named_children
        if node == self._main:
            return inside
        names = ".".join(_namespace_of(node))
        self.inside(self.builder.declare("namespace", names, node), inside)
        return ()

    def _using(self, node: Node) -> Sequence[Node]:
        alias = node.child_by_field_name("name")
        words = {child.type for child in node.children}
        target = [child for child in node.named_children if child != alias and child.type in _NAMES]
        if not target:
            return ()
        module = ".".join(_names_in(target[-1])).removeprefix(GLOBAL)
        if alias is not None:
            self.builder.imports(node, module, (Binding(name_of(alias)),), kind="alias")
        else:
            kind = "static" if "static" in words else "global" if "global" in words else ""
            self.builder.imports(node, module, (Binding("*", "*"),), kind=kind)
        return ()

    # Types

    def _class(self, node: Node) -> Sequence[Node]:
        name = name_of(node.child_by_field_name("name"))
        bounds = self._bounds_of(node)
        bases: list[Ref] = []
        given: list[Node] = []
        parameters: Node | None = None
        for child in node.named_children:
            if child.type == "base_list" and node.type != "enum_declaration":
                bases, given = self._bases_in(child, bounds)
            elif child.type == "parameter_list":
                parameters = child
        index = self.builder.declare(
            "class",
            name,
            node,
            signature=name,
            bases=bases,
            partial="partial" in _modifiers(node),
            parameters=_implied(node, parameters),
        )
        if parameters is not None:
            fields = self.builder.facts.declarations[index].fields
            for parameter in _parameters_in(parameters):
                held = self.type_of(parameter.child_by_field_name("type"), bounds)
                fields[name_of(parameter.child_by_field_name("name"))] = held or UNKNOWN
        if given and bases:
            with self.builder.inside(index):
                self.builder.call(given[0], constructing(bases[0]), _counted(given[0]))
        body = node.child_by_field_name("body")
        self.inside(index, [*given, *([] if body is None else body.named_children)], bounds)
        return ()

    def _bases_in(self, node: Node, bounds: Mapping[str, Ref]) -> tuple[list[Ref], list[Node]]:
        """What a class extends, and what it gives to the constructor of the first."""
        bases: list[Ref] = []
        given: list[Node] = []
        for child in node.named_children:
            written = child
            if child.type == "primary_constructor_base_type":
                written = child.child_by_field_name("type") or child
                given += [part for part in child.named_children if part.type == "argument_list"]
            elif child.type == "argument_list":
                given.append(child)
            known = self.type_of(written, bounds)
            if known is not None:
                bases.append(known)
        return bases, given

    def _delegate(self, node: Node) -> Sequence[Node]:
        name = name_of(node.child_by_field_name("name"))
        self.builder.declare("type", name, node, signature=_signature(node, name, "type"))
        return ()

    def _enum_member(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        if around is not None:
            own = named(around.name, is_type=True)
            around.fields.setdefault(name_of(node.child_by_field_name("name")), own)
        return ()

    # Members

    def _method(self, node: Node) -> Sequence[Node]:
        # What is written for an interface is not called by its own name: `void I.F() { }`.
        name = f"{_interface_of(node)}{name_of(node.child_by_field_name('name'))}"
        field = "returns" if node.type == "method_declaration" else "type"
        bounds = self._bounds_of(node)
        modifiers = _modifiers(node)
        static = "static" in modifiers
        receiver = self._extended(node, bounds) if static else None
        index = self.builder.declare(
            "function",
            name,
            node,
            signature=_signature(node, name, field),
            receiver=receiver,
            returns=self.type_of(node.child_by_field_name(field), bounds),
            static=static,
            forward="partial" in modifiers and node.child_by_field_name("body") is None,
            parameters=_taken_by(node.child_by_field_name("parameters"), receiver is not None),
        )
        self._insides(index, node, bounds)
        return ()

    def _extended(self, node: Node, bounds: Mapping[str, Ref]) -> Ref | None:
        """The class that an extension method is for."""
        parameters = node.child_by_field_name("parameters")
        for first in [] if parameters is None else parameters.named_children[:1]:
            if "this" in _modifiers(first):
                extended = self.type_of(first.child_by_field_name("type"), bounds)
                return extended if extended is not None and extended.steps else None
        return None

    def _constructor(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        name = name_of(node.child_by_field_name("name"))
        index = self.builder.declare(
            "function",
            name,
            node,
            signature=_signature(node, name, ""),
            returns=named(name if around is None else around.name, is_type=True),
            static="static" in _modifiers(node),
            parameters=_taken_by(node.child_by_field_name("parameters")),
        )
        self._insides(index, node, {})
        return ()

    def _unnamed_member(self, node: Node) -> Sequence[Node]:
        """Operators and such: they have code, and are called by no name."""
        name = name_of(node.child_by_field_name("name"))
        match node.type:
            case "operator_declaration":
                name = f"operator {name_of(node.child_by_field_name('operator'))}"
            case "conversion_operator_declaration":
                name = f"operator {type_text(node.child_by_field_name('type'), _ATTRIBUTES)}"
            case "indexer_declaration":
                name = "this[]"
            case "destructor_declaration":
                name = f"~{name}"
            case _:
                held = self.type_of(node.child_by_field_name("type"))
                self.builder.field(name, held or UNKNOWN)
        index = self.builder.declare(
            "function",
            name,
            node,
            signature=_signature(node, name, "type"),
            returns=self.type_of(node.child_by_field_name("type")),
            static="static" in _modifiers(node),
        )
        self._insides(index, node, {})
        return ()

    def _property(self, node: Node) -> Sequence[Node]:
        """A field; a property with code is also a function."""
        name = name_of(node.child_by_field_name("name"))
        held = self.type_of(node.child_by_field_name("type"))
        self.builder.field(name, held or UNKNOWN)
        value = node.child_by_field_name("value")
        accessors = node.child_by_field_name("accessors")
        worked_out = value is not None and value.type == "arrow_expression_clause"
        if accessors is not None:
            worked_out = worked_out or any(
                accessor.child_by_field_name("body") is not None
                for accessor in accessors.named_children
            )
        if not worked_out:
            return self._value_of(value, held)
        index = self.builder.declare(
            "function",
            name,
            node,
            signature=_signature(node, name, "type"),
            returns=held,
            static="static" in _modifiers(node),
        )
        self._insides(index, node, {})
        return ()

    def _insides(self, index: int, node: Node, bounds: Mapping[str, Ref]) -> None:
        nodes = [
            child
            for child in node.named_children
            if child.type
            in (
                "accessor_list",
                "arrow_expression_clause",
                "block",
                "bracketed_parameter_list",
                "constructor_initializer",
                "parameter_list",
            )
        ]
        self.inside(index, nodes, bounds)

    # Variables

    def _field(self, node: Node) -> Sequence[Node]:
        values: list[Node] = []
        for declaration in node.named_children:
            if declaration.type != "variable_declaration":
                continue
            held = self.type_of(declaration.child_by_field_name("type"))
            for name, value in _declarators(declaration):
                self.builder.field(name, held or UNKNOWN)
                values += self._value_of(value, held)
        return values

    def _locals(self, node: Node) -> Sequence[Node]:
        written = node.child_by_field_name("type")
        inferred = written is not None and written.type == "implicit_type"
        held = None if inferred else self.type_of(written)
        for child in node.named_children:
            if child.type == "variable_declarator" and child.child_by_field_name("name") is None:
                self.walk(child.named_children)
        for name, value in _declarators(node):
            # Before the name is known: what makes the value cannot see it.
            self.walk(self._value_of(value, held))
            if inferred:
                held = None if value is None else self.value(value)
            self.local(name, held)
        return ()

    def _value_of(self, value: Node | None, held: Ref | None) -> Sequence[Node]:
        """What is to be seen of a value; ``new()`` makes what the variable is declared to hold."""
        if value is None:
            return ()
        if value.type != "implicit_object_creation_expression" or held is None:
            return (value,)
        self.builder.call(value, constructing(held), _arguments(value))
        return value.named_children

    def _parameters(self, node: Node) -> Sequence[Node]:
        # The last one, if it takes any number of values, is no node of its own.
        for name in node.children_by_field_name("name"):
            self.local(name_of(name), None)
        return [child for child in node.named_children if child.type == "parameter"]

    def _parameter(self, node: Node) -> Sequence[Node]:
        held = self.type_of(node.child_by_field_name("type"))
        self.local(name_of(node.child_by_field_name("name")), held)
        return ()

    def _untyped(self, node: Node) -> Sequence[Node]:
        self.local(name_of(node), None)
        return ()

    def _untyped_all(self, node: Node) -> Sequence[Node]:
        for name in node.children_by_field_name("name"):
            self.local(name_of(name), None)
        return node.named_children

    def _foreach(self, node: Node) -> Sequence[Node]:
        name = node.child_by_field_name("left")
        if name is not None and name.type == "identifier":
            self.local(name_of(name), self.type_of(node.child_by_field_name("type")))
        return node.named_children

    def _typed_name(self, node: Node) -> Sequence[Node]:
        name = node.child_by_field_name("name")
        if name is not None and name.type == "identifier":
            self.local(name_of(name), self.type_of(node.child_by_field_name("type")))
        return node.named_children

    # Calls

    def _call(self, node: Node) -> Sequence[Node]:
        function = node.child_by_field_name("function")
        if function is not None and function.type == "identifier" and name_of(function) == "nameof":
            return ()
        place = function
        if function is not None and function.type == "member_access_expression":
            place = function.child_by_field_name("name")
        self.builder.call(node if place is None else place, self.value(node), _arguments(node))
        return node.named_children

    def _creation(self, node: Node) -> Sequence[Node]:
        self.builder.call(node, self.value(node), _arguments(node))
        return node.named_children

    def _unnamed_creation(self, node: Node) -> Sequence[Node]:
        self.builder.call(node, Ref("opaque", (Step("new", called=True),)))
        return node.named_children

    def _arrow(self, node: Node) -> Sequence[Node]:
        around = self.builder.here_declared
        inside = node.named_children
        if around is None or around.kind != "function" or len(inside) != 1:
            return inside
        return self._value_of(inside[0], around.returns)

    def _other_constructor(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        words = {child.type for child in node.children}
        if "this" in words:
            self.builder.call(node, Ref("self", ()), _arguments(node))
        elif around is not None and around.bases:
            self.builder.call(node, constructing(around.bases[0]), _arguments(node))
        return node.named_children

    def value(self, node: Node) -> Ref:
        """An expression as far as it is made of names."""
        steps: list[Step] = []
        base: Base = "opaque"
        at: Node | None = node
        called = False
        while at is not None and len(steps) < STEPS_MAX:
            match at.type:
                case "identifier" | "generic_name":
                    name = _simple_name(at)
                    steps.append(Step(name if called else self.local_name(name), called))
                    base, at, called = "name", None, False
                case "predefined_type":
                    steps.append(Step(name_of(at), called))
                    base, at = "name", None
                case "invocation_expression":
                    if called:  # What a call returns is called in turn: nobody can tell.
                        return Ref("opaque", tuple(reversed(steps)))
                    at, called = at.child_by_field_name("function"), True
                case "member_access_expression":
                    steps.append(Step(_simple_name(at.child_by_field_name("name")), called))
                    at, called = at.child_by_field_name("expression"), False
                case "conditional_access_expression":
                    after = at.named_children[-1]
                    if after.type != "member_binding_expression":
                        break
                    steps.append(Step(_simple_name(after.child_by_field_name("name")), called))
                    at, called = at.child_by_field_name("condition"), False
                case "qualified_name" | "alias_qualified_name":
                    names = _names_in(at)
                    steps += [Step(names[-1], called), *map(Step, names[-2::-1])]
                    base, at, called = "name", None, False
                case "object_creation_expression" | "cast_expression" | "as_expression":
                    field = "right" if at.type == "as_expression" else "type"
                    made = self.type_of(at.child_by_field_name(field))
                    at = None
                    if made is not None and made.steps:
                        steps += constructing(made).steps[::-1]
                        base = made.base
                    elif not steps:
                        steps.append(Step("new", called=True))
                case "parenthesized_expression" | "postfix_unary_expression":
                    at = at.named_children[0] if at.named_child_count == 1 else None
                case "this":
                    base, at = "self", None
                case "base":
                    base, at = "super", None
                case "string_literal" | "interpolated_string_expression" | "typeof_expression":
                    kind = "Type" if at.type == "typeof_expression" else "string"
                    steps.append(Step(kind, called=True))
                    base, at = "name", None
                case _:
                    at = None
        if called and not steps:
            steps.append(Step("", called=True))
        base = "opaque" if at is not None else base
        made_here = node.type == "object_creation_expression" and base == "name"
        return Ref(base, tuple(reversed(steps)), is_type=made_here)

    # Types as they are written

    def type_of(self, node: Node | None, bounds: Mapping[str, Ref] | None = None) -> Ref | None:
        """The class that a type names; None for what has no members of the archive's."""
        while node is not None and node.type in ("nullable_type", "ref_type", "scoped_type"):
            node = node.child_by_field_name("type")
        if node is None:
            return None
        if node.type == "predefined_type":
            word = name_of(node)
            return None if word == "void" else named(word, is_type=True)
        if node.type not in _NAMES:
            return None
        names = _names_in(node)
        if len(names) == 1:
            known = (bounds or {}).get(names[0]) or self.bound(names[0])
            if known is not None:
                return known
        return named(*names, is_type=True)

    def _bounds_of(self, node: Node) -> Mapping[str, Ref]:
        """The type parameters of a declaration, each with what it is said to extend, if one."""
        bounds: dict[str, Ref] = {}
        for child in node.named_children:
            if child.type == "type_parameter_list":
                for parameter in child.named_children:
                    name = parameter.child_by_field_name("name") or parameter
                    bounds[name_of(name)] = UNKNOWN
            elif child.type == "type_parameter_constraints_clause":
                name, *constraints = child.named_children or [child]
                for constraint in constraints:
                    known = self.type_of(constraint.child_by_field_name("type"), bounds)
                    if known is not None and bounds.get(name_of(name)) == UNKNOWN:
                        bounds[name_of(name)] = known
        return bounds


def _namespace_of(node: Node) -> tuple[str, ...]:
    name = node.child_by_field_name("name")
    return () if name is None else tuple(_names_in(name))


def _declared_in(node: Node) -> int:
    body = node.child_by_field_name("body")
    # A namespace for the whole file has no body: what follows is in it.
    return 1 << 30 if body is None else body.named_child_count


def _names_in(node: Node) -> list[str]:
    """The names of a path, without type arguments."""
    names: list[str] = []
    at: Node | None = node
    while at is not None and len(names) < STEPS_MAX:
        if at.type == "qualified_name":
            names.append(_simple_name(at.child_by_field_name("name")))
            at = at.child_by_field_name("qualifier")
        elif at.type == "alias_qualified_name":
            names.append(_simple_name(at.child_by_field_name("name")))
            alias = name_of(at.child_by_field_name("alias"))
            if alias in ("global", ""):
                names[-1] = GLOBAL + names[-1]
            else:
                names.append(alias)
            at = None
        else:
            names.append(_simple_name(at))
            at = None
    return names[::-1]


def _simple_name(node: Node | None) -> str:
    if node is not None and node.type == "generic_name":
        node = node.named_children[0] if node.named_child_count else None
    return name_of(node)


def _modifiers(node: Node) -> frozenset[str]:
    return frozenset(name_of(child) for child in node.named_children if child.type == "modifier")


def _declarators(node: Node) -> Iterable[tuple[str, Node | None]]:
    for declarator in node.named_children:
        name = declarator.child_by_field_name("name")
        if declarator.type == "variable_declarator" and name is not None:
            values = [
                child
                for child in declarator.named_children
                if child != name and child.type != "bracketed_argument_list"
            ]
            yield name_of(name), values[-1] if values else None


def _interface_of(node: Node) -> str:
    for child in node.named_children:
        if child.type == "explicit_interface_specifier" and child.named_child_count:
            return ".".join(_names_in(child.named_children[0])) + "."
    return ""


def _arguments(node: Node) -> int:
    """How many arguments a call gives: none, if it may leave out even the parentheses."""
    lists = [child for child in node.named_children if child.type == "argument_list"]
    return _counted(lists[-1]) if lists else 0


def _counted(given: Node) -> int:
    """How many arguments there are; -1 if that cannot be made out."""
    kinds = {child.type for child in given.named_children if not child.is_extra}
    if given.has_error or not kinds <= {"argument"}:
        return -1
    return sum(child.type == "argument" for child in given.named_children)


def _taken_by(parameters: Node | None, extends: bool = False) -> tuple[int, int]:
    """How many arguments a method takes, at least and at most; an extension, as a method."""
    if parameters is None or parameters.has_error:
        return (0, -1)
    declared = _parameters_in(parameters)
    needed = sum(not any(child.type == "=" for child in one.children) for one in declared)
    takes_more = parameters.child_by_field_name("name") is not None
    return (needed - extends, -1 if takes_more else len(declared) - extends)


def _implied(node: Node, parameters: Node | None) -> tuple[int, int] | None:
    """What the constructor takes that a class has by its head, or a struct by being one."""
    if parameters is not None:
        return _taken_by(parameters)
    body = node.child_by_field_name("body")
    if node.type != "struct_declaration" or body is None:
        return None
    takes_none = any(
        member.type == "constructor_declaration"
        and "static" not in _modifiers(member)
        and _taken_by(member.child_by_field_name("parameters")) == (0, 0)
        for member in body.named_children
    )
    return None if takes_none else (0, 0)


def _parameters_in(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type == "parameter"]


def _signature(node: Node, name: str, result_field: str) -> str:
    parameters = node.child_by_field_name("parameters")
    result = type_text(node.child_by_field_name(result_field), _ATTRIBUTES) if result_field else ""
    if parameters is None:
        return f"{result} {name}".strip()
    written = [
        f"{type_text(parameter.child_by_field_name('type'), _ATTRIBUTES)} "
        f"{name_of(parameter.child_by_field_name('name'))}".strip()
        for parameter in _parameters_in(parameters)
    ]
    rest = parameters.child_by_field_name("name")
    if rest is not None:
        kind = type_text(parameters.child_by_field_name("type"), _ATTRIBUTES)
        written.append(f"params {kind} {name_of(rest)}")
    return f"{result} {name}({', '.join(written)})".strip()
