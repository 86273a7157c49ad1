"""Extracts the declarations, imports and calls of a Java file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

import tree_sitter_java
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

_ANNOTATIONS: Final = frozenset({"annotation", "marker_annotation", "modifiers"})
_TYPES_WITH_NAME: Final = frozenset({"type_identifier", "scoped_type_identifier", "generic_type"})
_SKIPPED: Final = words(
    """
    annotation block_comment character_literal decimal_integer_literal dimensions false identifier
    line_comment marker_annotation modifiers null_literal string_literal this true type_arguments
    type_identifier
    """
)


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_java.language()))


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of a Java file; of what cannot be parsed, as much as can be made out."""
    root = _parser().parse(source).root_node
    facts = JavaExtraction(path).facts_of(root)
    facts.lines = lines_in(root)
    facts.broken = root.has_error
    return facts


class JavaExtraction(Extraction):
    """The walk of one Java file."""

    def __init__(self, path: str) -> None:
        handlers: dict[str, Handler] = dict.fromkeys(_SKIPPED, nothing)
        for kind in ("class", "interface", "enum", "record", "annotation_type"):
            handlers[f"{kind}_declaration"] = self._class
        handlers |= {
            "package_declaration": self._package,
            "import_declaration": self._import,
            "method_declaration": self._method,
            "annotation_type_element_declaration": self._method,
            "constructor_declaration": self._constructor,
            "compact_constructor_declaration": self._constructor,
            "field_declaration": self._field,
            "constant_declaration": self._field,
            "enum_constant": self._enum_constant,
            "local_variable_declaration": self._local,
            "formal_parameter": self._typed_name,
            "resource": self._typed_name,
            "enhanced_for_statement": self._typed_name,
            "instanceof_expression": self._typed_name,
            "type_pattern": self._type_pattern,
            "record_pattern_component": self._type_pattern,
            "spread_parameter": self._spread,
            "catch_formal_parameter": self._caught,
            "lambda_expression": self._lambda,
            "method_invocation": self._call,
            "object_creation_expression": self._creation,
            "explicit_constructor_invocation": self._other_constructor,
        }
        super().__init__(Builder(path, "java"), handlers)
        self._anonymous = 0

    def facts_of(self, root: Node) -> FileFacts:
        self.walk(root.named_children)
        return self.builder.facts

    # Packages, and what is imported from them

    def _package(self, node: Node) -> Sequence[Node]:
        for child in node.named_children:
            if child.type in ("identifier", "scoped_identifier"):
                self.builder.facts.package = tuple(_dotted(child))
        return ()

    def _import(self, node: Node) -> Sequence[Node]:
        names: list[str] = []
        static = everything = False
        for child in node.children:
            static = static or child.type == "static"
            everything = everything or child.type == "asterisk"
            if child.type in ("identifier", "scoped_identifier"):
                names = _dotted(child)
        if not names:
            return ()
        if everything:
            bindings = Binding("*", "*")
        elif static and len(names) > 1:
            last = names.pop()
            bindings = Binding(last, last)
        else:
            bindings = Binding(names[-1])
        kind = "static" if static else "package" if everything else ""
        self.builder.imports(node, ".".join(names), (bindings,), kind=kind)
        return ()

    # Classes

    def _class(self, node: Node) -> Sequence[Node]:
        name = name_of(node.child_by_field_name("name"))
        bases: list[Ref] = []
        # What a class extends comes before what it implements: `super` is the first of them.
        for child in node.named_children:
            if child.type in ("superclass", "super_interfaces", "extends_interfaces"):
                bases += self._types_in(child)
        parameters = node.child_by_field_name("parameters")
        body = node.child_by_field_name("body")
        bounds = self._bounds_of(node)
        index = self.builder.declare(
            "class", name, node, signature=name, bases=bases, parameters=_components(node)
        )
        if parameters is not None:
            fields = self.builder.facts.declarations[index].fields
            for parameter in parameters.named_children:
                held = self.type_of(parameter.child_by_field_name("type"))
                fields[name_of(parameter.child_by_field_name("name"))] = held or UNKNOWN
        self.inside(index, () if body is None else body.named_children, bounds)
        return ()

    def _anonymous_class(self, base: Ref | None, body: Node) -> None:
        self._anonymous += 1
        of = base.steps[-1].name if base is not None and base.steps else ""
        index = self.builder.declare(
            "class",
            f"{of}${self._anonymous}",
            body,
            bases=() if base is None else (Ref(base.base, base.steps, is_type=True),),
        )
        self.inside(index, body.named_children)

    def _enum_constant(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        if around is None:
            return ()
        own = named(around.name, is_type=True)
        around.fields.setdefault(name_of(node.child_by_field_name("name")), own)
        arguments = node.child_by_field_name("arguments")
        body = node.child_by_field_name("body")
        if arguments is not None:
            self.builder.call(node, named(around.name, called=True), _arguments(node))
            self.walk(arguments.named_children)
        if body is not None:
            self._anonymous_class(own, body)
        return ()

    def _field(self, node: Node) -> Sequence[Node]:
        held = self.type_of(node.child_by_field_name("type"))
        values: list[Node] = []
        for declarator in node.children_by_field_name("declarator"):
            array = declarator.child_by_field_name("dimensions") is not None
            name = name_of(declarator.child_by_field_name("name"))
            self.builder.field(name, UNKNOWN if array or held is None else held)
            values += _present(declarator.child_by_field_name("value"))
        return values

    # Methods

    def _method(self, node: Node) -> Sequence[Node]:
        returned = node.child_by_field_name("type")
        bounds = self._bounds_of(node)
        index = self.builder.declare(
            "function",
            name_of(node.child_by_field_name("name")),
            node,
            signature=_signature(node),
            returns=self.type_of(returned, bounds),
            static=_is_static(node),
            parameters=_taken_by(node),
        )
        self._insides(index, node, bounds)
        return ()

    def _constructor(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        name = name_of(node.child_by_field_name("name"))
        own = named(around.name if around is not None else name, is_type=True)
        is_compact = node.type == "compact_constructor_declaration"
        record = node.parent.parent if is_compact and node.parent is not None else None
        taken = _taken_by(node if record is None else record)
        index = self.builder.declare(
            "function", name, node, signature=_signature(node), returns=own, parameters=taken
        )
        self._insides(index, node, self._bounds_of(node))
        return ()

    def _insides(self, index: int, node: Node, bounds: Mapping[str, Ref]) -> None:
        parameters = node.child_by_field_name("parameters")
        body = node.child_by_field_name("body")
        nodes = [] if parameters is None else parameters.named_children
        self.inside(index, [*nodes, *_present(body)], bounds)

    # Variables

    def _local(self, node: Node) -> Sequence[Node]:
        written = node.child_by_field_name("type")
        inferred = written is not None and written.type == "type_identifier"
        inferred = inferred and name_of(written) == "var"
        held = None if inferred else self.type_of(written)
        for declarator in node.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value")
            if value is not None:
                # Before the name is known: what makes the value cannot see it.
                self.walk((value,))
            if inferred:
                held = None if value is None or _has_body(value) else self.value(value)
            array = declarator.child_by_field_name("dimensions") is not None
            name = name_of(declarator.child_by_field_name("name"))
            self.local(name, None if array else held)
        return ()

    def _typed_name(self, node: Node) -> Sequence[Node]:
        name = node.child_by_field_name("name")
        written = node.child_by_field_name("type") or node.child_by_field_name("right")
        if name is None or written is None:
            return node.named_children
        if name_of(written) == "var":
            value = node.child_by_field_name("value")
            iterated = node.type == "enhanced_for_statement"
            self.local(name_of(name), None if value is None or iterated else self.value(value))
        else:
            self.local(name_of(name), self.type_of(written))
        return node.named_children

    def _type_pattern(self, node: Node) -> Sequence[Node]:
        children = node.named_children
        if len(children) > 1 and children[-1].type == "identifier":
            self.local(name_of(children[-1]), self.type_of(children[-2]))
            return ()
        return children

    def _spread(self, node: Node) -> Sequence[Node]:
        for child in node.named_children:
            if child.type == "variable_declarator":
                self.local(name_of(child.child_by_field_name("name")), None)
        return ()

    def _caught(self, node: Node) -> Sequence[Node]:
        types = [kind for child in node.named_children for kind in self._types_of_catch(child)]
        held = types[0] if len(types) == 1 else None
        self.local(name_of(node.child_by_field_name("name")), held)
        return ()

    def _types_of_catch(self, node: Node) -> list[Ref]:
        return self._types_in(node) if node.type == "catch_type" else []

    def _lambda(self, node: Node) -> Sequence[Node]:
        parameters = node.child_by_field_name("parameters")
        if parameters is None:
            return node.named_children
        if parameters.type == "identifier":
            self.local(name_of(parameters), None)
        elif parameters.type == "inferred_parameters":
            for name in parameters.named_children:
                self.local(name_of(name), None)
        return node.named_children

    # Calls

    def _call(self, node: Node) -> Sequence[Node]:
        name = node.child_by_field_name("name")
        place = node if name is None else name
        self.builder.call(place, self.value(node), _arguments(node))
        return node.named_children

    def _creation(self, node: Node) -> Sequence[Node]:
        made = self.value(node)
        self.builder.call(node, made, _arguments(node))
        body: Node | None = None
        rest: list[Node] = []
        for child in node.named_children:
            if child.type == "class_body":
                body = child
            elif child.type not in _TYPES_WITH_NAME:
                rest.append(child)
        if body is None:
            return rest
        self.walk(rest)
        base = Ref(made.base, tuple(Step(step.name) for step in made.steps))
        self._anonymous_class(base, body)
        return ()

    def _other_constructor(self, node: Node) -> Sequence[Node]:
        around = self.builder.innermost("class")
        which = node.child_by_field_name("constructor")
        if around is not None and which is not None:
            if which.type == "this":
                self.builder.call(node, Ref("self", ()), _arguments(node))
            elif around.bases:
                self.builder.call(node, constructing(around.bases[0]), _arguments(node))
            else:
                self.builder.call(node, named("Object", called=True))
        return node.named_children

    def value(self, node: Node) -> Ref:
        """An expression as far as it is made of names."""
        steps: list[Step] = []
        base: Base = "opaque"
        at: Node | None = node
        while at is not None and len(steps) < STEPS_MAX:
            match at.type:
                case "identifier":
                    steps.append(Step(self.local_name(name_of(at))))
                    base, at = "name", None
                case "method_invocation":
                    steps.append(Step(name_of(at.child_by_field_name("name")), called=True))
                    at = at.child_by_field_name("object")
                    base = "name" if at is None else base
                case "field_access":
                    name = at.child_by_field_name("field")
                    if name is not None and name.type == "identifier":
                        steps.append(Step(name_of(name)))
                    # `Outer.this` is an Outer: its members are those of the name before it.
                    at = at.child_by_field_name("object")
                case "object_creation_expression":
                    made = self.type_of(at.child_by_field_name("type"), {})
                    first = at.named_children[0] if at.named_child_count else None
                    if made is None or not made.steps:
                        return Ref("opaque", (Step("new", called=True), *steps[::-1]))
                    if steps and _has_body(at):  # which may override what is called
                        return Ref("opaque", tuple(steps[::-1]))
                    steps += [*constructing(made).steps[::-1]]
                    base, at = "name", None
                    if first is not None and first.type in ("identifier", "field_access", "this"):
                        base, at = "opaque", first
                case "cast_expression":
                    made = self.type_of(at.child_by_field_name("type"))
                    at = None
                    if made is not None and made.steps:
                        steps += [*constructing(made).steps[::-1]]
                        base = "name"
                case "parenthesized_expression":
                    at = at.named_children[0] if at.named_child_count == 1 else None
                case "this":
                    base, at = "self", None
                case "super":
                    base, at = "super", None
                case "string_literal" | "class_literal":
                    kind = "String" if at.type == "string_literal" else "Class"
                    steps.append(Step(kind, called=True))
                    base, at = "name", None
                case _:
                    at = None
        if at is not None:
            base = "opaque"
        made_here = node.type == "object_creation_expression" and base == "name"
        return Ref(base, tuple(reversed(steps)), is_type=made_here)

    # Types

    def type_of(self, node: Node | None, bounds: Mapping[str, Ref] | None = None) -> Ref | None:
        """The class that a type names; None for what has no members of the archive's."""
        while node is not None and node.type in ("generic_type", "annotated_type"):
            inner = [child for child in node.named_children if child.type in _TYPES_WITH_NAME]
            node = inner[0] if inner else None
        if node is None:
            return None
        if node.type == "type_identifier":
            name = name_of(node)
            if bounds and name in bounds:
                return bounds[name]
            return self.bound(name) or named(name, is_type=True)
        if node.type == "scoped_type_identifier":
            return named(*_scoped_type(node), is_type=True)
        return None

    def _types_in(self, node: Node) -> list[Ref]:
        found: list[Ref] = []
        for child in node.named_children:
            if child.type == "type_list":
                found += self._types_in(child)
                continue
            known = self.type_of(child)
            if known is not None:
                found.append(known)
        return found

    def _bounds_of(self, node: Node) -> Mapping[str, Ref]:
        parameters = node.child_by_field_name("type_parameters")
        if parameters is None:
            return {}
        bounds: dict[str, Ref] = {}
        for parameter in parameters.named_children:
            name = ""
            bound: Ref | None = None
            for child in parameter.named_children:
                if child.type == "type_identifier":
                    name = name_of(child)
                elif child.type == "type_bound" and child.named_child_count:
                    bound = self.type_of(child.named_children[0], bounds)
            bounds[name] = bound or UNKNOWN
        return bounds


def _dotted(node: Node) -> list[str]:
    names: list[str] = []
    at: Node | None = node
    while at is not None and at.type == "scoped_identifier":
        names.append(name_of(at.child_by_field_name("name")))
        at = at.child_by_field_name("scope")
    if at is not None:
        names.append(name_of(at))
    return names[::-1]


def _scoped_type(node: Node) -> list[str]:
    names: list[str] = []
    pending = [node]
    while pending and len(names) < STEPS_MAX:
        at = pending.pop()
        if at.type == "type_identifier":
            names.append(name_of(at))
        elif at.type in _TYPES_WITH_NAME:
            pending.extend(child for child in at.named_children if child.type in _TYPES_WITH_NAME)
    return names[::-1]


def _present(node: Node | None) -> list[Node]:
    return [] if node is None else [node]


def _has_body(node: Node) -> bool:
    """Whether an object has an anonymous class, as in ``new Thread() { ... }``."""
    return any(child.type == "class_body" for child in node.named_children)


def _arguments(node: Node) -> int:
    """How many arguments a call gives; -1 if that cannot be made out."""
    given = node.child_by_field_name("arguments")
    if given is None or given.has_error:
        return -1
    return sum(not child.is_extra for child in given.named_children)


def _taken_by(node: Node) -> tuple[int, int]:
    """How many arguments a method takes, at least and at most."""
    parameters = node.child_by_field_name("parameters")
    if parameters is None:
        return (0, 0)
    if parameters.has_error:
        return (0, -1)
    kinds = [child.type for child in parameters.named_children]
    least = kinds.count("formal_parameter")
    return (least, -1 if "spread_parameter" in kinds else least)


def _components(node: Node) -> tuple[int, int] | None:
    """What a record is made of, unless it declares the constructor that takes it."""
    body = node.child_by_field_name("body")
    if node.type != "record_declaration" or body is None:
        return None
    own = _types_written(node)
    for member in body.named_children:
        if member.type == "compact_constructor_declaration" or (
            member.type == "constructor_declaration" and _types_written(member) == own
        ):
            return None
    return _taken_by(node)


def _types_written(node: Node) -> list[str]:
    parameters = node.child_by_field_name("parameters")
    written = [] if parameters is None else _written(parameters.named_children)
    return [one.rpartition(" ")[0] for one in written]


def _is_static(node: Node) -> bool:
    for child in node.children:
        if child.type == "modifiers":
            return any(word.type == "static" for word in child.children)
    return False


def _signature(node: Node) -> str:
    parameters = node.child_by_field_name("parameters")
    written = [] if parameters is None else [*_written(parameters.named_children)]
    result = type_text(node.child_by_field_name("type"), _ANNOTATIONS)
    name = name_of(node.child_by_field_name("name"))
    return f"{result} {name}({', '.join(written)})".strip()


def _written(parameters: Iterable[Node]) -> Iterable[str]:
    for parameter in parameters:
        if parameter.type == "formal_parameter":
            written = type_text(parameter.child_by_field_name("type"), _ANNOTATIONS)
            dimensions = type_text(parameter.child_by_field_name("dimensions"), _ANNOTATIONS)
            yield f"{written}{dimensions} {name_of(parameter.child_by_field_name('name'))}"
        elif parameter.type == "spread_parameter":
            kinds = [child for child in parameter.named_children if child.type not in _ANNOTATIONS]
            if len(kinds) > 1:
                name = name_of(kinds[-1].child_by_field_name("name"))
                yield f"{type_text(kinds[0], _ANNOTATIONS)}... {name}"
