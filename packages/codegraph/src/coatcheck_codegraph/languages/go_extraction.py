"""Extracts the declarations, imports and calls of a Go file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import tree_sitter_go
from tree_sitter import Language, Node, Parser

from coatcheck_codegraph.builder import Builder, name_of, named, spelled, text
from coatcheck_codegraph.facts import FILE, Binding, FileFacts, Ref
from coatcheck_codegraph.language import words
from coatcheck_codegraph.languages.alternatives import leave_open
from coatcheck_codegraph.languages.go_references import (
    TypeParameters,
    element_ref,
    elements,
    made,
    reference,
    type_names,
    type_parameters,
    type_ref,
    value,
)
from coatcheck_codegraph.languages.scopes import OPAQUE, Scopes

_GRAMMAR: Final = Language(tree_sitter_go.language())
_FUNCTIONS_NESTED_MAX: Final = 20
"""The nesting depth of function literals that get a name; deeper ones have none."""

_EMPTY: Final = frozenset(
    words(
        """
        identifier field_identifier package_identifier type_identifier blank_identifier label_name
        interpreted_string_literal raw_string_literal int_literal float_literal rune_literal
        imaginary_literal nil true false iota comment dot qualified_type pointer_type slice_type
        array_type map_type channel_type function_type interface_type struct_type generic_type
        type_arguments escape_sequence break_statement continue_statement
        """
    )
)
"""Nodes in which nothing is declared and nothing called."""

_BLOCKS: Final = frozenset(
    words(
        """
        block if_statement for_statement expression_switch_statement type_switch_statement
        select_statement expression_case default_case communication_case type_case
        """
    )
)
"""Nodes whose variables end with them."""

Todo = list["Node | Callable[[], None]"]
"""The stack of the walk: nodes to visit, last one first, and actions between them."""

_VERSION: Final = re.compile(r"v[0-9]+")
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of the Go file at ``path``."""
    tree = Parser(_GRAMMAR).parse(source)
    root = tree.root_node
    builder = Builder(path, "go")
    builder.facts.lines = source.count(b"\n") + (not source.endswith(b"\n") and bool(source))
    builder.facts.broken = root.has_error
    file = _GoFile(builder)
    file.read(root)
    _name_receivers(builder.facts)
    file.settle()
    return builder.facts


def _name_receivers(facts: FileFacts) -> None:
    """A named type that has methods is a class, whatever it is made of."""
    owners = {
        declared.receiver.steps[0].name for declared in facts.declarations if declared.receiver
    }
    for declared in facts.declarations:
        if declared.kind == "type" and declared.parent < 0 and declared.name in owners:
            declared.kind = "class"


def local_names(path: str) -> tuple[str, ...]:
    """The names that the package at an import path may have: the package itself decides."""
    parts = [part for part in path.split("/") if part]
    if len(parts) > 1 and _VERSION.fullmatch(parts[-1]):
        parts.pop()
    if not parts:
        return ()
    last = re.sub(r"\.v[0-9]+$", "", parts[-1])
    bare = re.sub(r"^go[-.]|[-.]go$", "", last)
    spellings = [
        last,
        bare,
        *(bare.replace("-", with_) for with_ in ("_", "")),
        bare.split("-")[-1],
    ]
    return tuple(dict.fromkeys(name for name in spellings if _IDENTIFIER.fullmatch(name)))


class _GoFile:
    """The walk of one file, top down, with an explicit stack: code may nest without limit."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._scopes: Scopes | None = None
        self._parameters: TypeParameters = {}
        self._nested = 0
        self._assigned_outside: set[str] = set()
        self._handlers: Mapping[str, Callable[[Node, Todo], None]] = {
            "package_clause": self._package,
            "import_spec": self._import,
            "type_spec": self._type,
            "type_alias": self._type,
            "function_declaration": self._function,
            "method_declaration": self._method,
            "func_literal": self._literal,
            "var_spec": self._variables,
            "const_spec": self._variables,
            "short_var_declaration": self._short_variables,
            "assignment_statement": self._assignment,
            "range_clause": self._range,
            "receive_statement": self._receive,
            "type_switch_statement": self._type_switch,
            "call_expression": self._call,
            "type_conversion_expression": self._conversion,
            "composite_literal": self._composite,
        }

    def read(self, root: Node) -> None:
        todo: Todo = [root]
        handlers = self._handlers
        while todo:
            item = todo.pop()
            if not isinstance(item, Node):
                item()
                continue
            kind = item.type
            if kind in _EMPTY:
                continue
            if kind in _BLOCKS and self._scopes is not None:
                self._scopes.open()
                todo.append(self._scopes.close)
            handler = handlers.get(kind)
            if handler is not None:
                handler(item, todo)
            else:
                todo.extend(reversed(item.named_children))

    def settle(self) -> None:
        """When the file was walked: a function in a variable of the package to which a function of
        this file gives another value is not known."""
        facts = self._builder.facts
        called = {call.callee.steps[0].name for call in facts.calls if len(call.callee.steps) == 1}
        assigned = self._assigned_outside & called
        for name in assigned.intersection(facts.variables):
            facts.variables[name] = OPAQUE
        leave_open(
            facts,
            [
                index
                for index, declared in enumerate(facts.declarations)
                if declared.name in assigned
                and declared.parent == FILE
                and declared.receiver is None
                and declared.kind == "function"
            ],
        )

    # Declarations of the file

    def _package(self, node: Node, _todo: object) -> None:
        names = node.named_children
        if names:
            self._builder.facts.package = (name_of(names[0]),)

    def _import(self, node: Node, _todo: object) -> None:
        path = text(node.child_by_field_name("path"))[1:-1]
        if not path:
            return
        name = node.child_by_field_name("name")
        if name is None:
            bindings = [Binding(local) for local in local_names(path)]
        elif name.type == "dot":
            bindings = [Binding("*", "*")]
        elif name.type == "blank_identifier":
            bindings = []
        else:
            bindings = [Binding(name_of(name))]
        self._builder.imports(node, path, bindings)

    def _type(self, node: Node, _todo: object) -> None:
        name = name_of(node.child_by_field_name("name"))
        made_of = node.child_by_field_name("type")
        if not name or made_of is None:
            return
        generic = node.child_by_field_name("type_parameters")
        signature = f"type {name}{spelled(generic)}"
        parameters = type_parameters(generic)
        if made_of.type == "struct_type" and node.type == "type_spec":
            index = self._builder.declare("class", name, node, signature=signature + " struct")
            with self._builder.inside(index):
                self._struct(index, made_of, parameters)
        elif made_of.type == "interface_type" and node.type == "type_spec":
            index = self._builder.declare("class", name, node, signature=signature + " interface")
            with self._builder.inside(index):
                self._interface(index, made_of, parameters)
        else:
            alias = node.type == "type_alias"
            stands_for = type_ref(made_of, parameters) if alias else None
            self._builder.declare("type", name, node, signature=signature, returns=stands_for)

    def _struct(self, index: int, node: Node, parameters: TypeParameters) -> None:
        bases: list[Ref] = []
        for listed in node.named_children:
            for field in listed.named_children:
                if field.type != "field_declaration":
                    continue
                typed = field.child_by_field_name("type")
                holds = type_ref(typed, parameters)
                names = field.children_by_field_name("name")
                if not names and holds is not None and holds.steps:
                    bases.append(holds)
                    self._builder.field(holds.steps[-1].name, holds)
                inside = element_ref(typed, parameters)
                for name in names:
                    self._builder.field(name_of(name), holds or OPAQUE)
                    if inside is not None:
                        self._builder.field(name_of(name) + "[]", inside)
        self._builder.facts.declarations[index].bases = tuple(bases)

    def _interface(self, index: int, node: Node, parameters: TypeParameters) -> None:
        bases: list[Ref] = []
        for part in node.named_children:
            if part.type == "type_elem":
                embedded = type_ref(part, parameters)
                if embedded is not None:
                    bases.append(embedded)
            elif part.type == "method_elem":
                name = name_of(part.child_by_field_name("name"))
                self._builder.declare(
                    "function",
                    name,
                    part,
                    signature=_signature(name, part),
                    returns=_returns(part, parameters),
                )
        self._builder.facts.declarations[index].bases = tuple(bases)

    # Functions

    def _function(self, node: Node, _todo: object) -> None:
        name = name_of(node.child_by_field_name("name"))
        with self._generic(type_parameters(node.child_by_field_name("type_parameters"))):
            index = self._builder.declare(
                "function",
                name,
                node,
                signature=_signature(name, node),
                returns=_returns(node, self._parameters),
            )
            self._body(index, node, None)

    def _method(self, node: Node, _todo: object) -> None:
        name = name_of(node.child_by_field_name("name"))
        listed = node.child_by_field_name("receiver")
        receivers = listed.named_children if listed is not None else []
        receiver = next((part for part in receivers if part.type == "parameter_declaration"), None)
        typed = receiver.child_by_field_name("type") if receiver is not None else None
        names = type_names(typed)
        owner = named(names[-1], is_type=True) if names else None
        with self._generic(_receiver_parameters(typed)):
            index = self._builder.declare(
                "function",
                name,
                node,
                signature=_signature(name, node),
                receiver=owner,
                returns=_returns(node, self._parameters),
            )
            own = receiver.child_by_field_name("name") if receiver is not None else None
            self._body(index, node, (name_of(own), owner) if own is not None else None)

    def _body(self, index: int, node: Node, receiver: tuple[str, Ref | None] | None) -> None:
        """The parameters and the block of a function, in a new scope or in the one around it."""
        body = node.child_by_field_name("body")
        before = self._scopes
        if self._nested > _FUNCTIONS_NESTED_MAX:
            return
        with self._builder.inside(index):
            if before is None:
                self._scopes = Scopes(self._builder)
            scopes = self._scopes
            if scopes is None:
                return
            scopes.open()
            self._nested += 1
            if receiver is not None:
                scopes.declare(*receiver)
            self._declare_parameters(node)
            if body is not None:
                self.read(body)
            self._nested -= 1
            scopes.close()
            if before is None:
                scopes.settle()
            self._scopes = before

    def _declare_parameters(self, node: Node) -> None:
        scopes = self._scopes
        if scopes is None:
            return
        for field in ("parameters", "result"):
            listed = node.child_by_field_name(field)
            if listed is None or listed.type != "parameter_list":
                continue
            for parameter in listed.named_children:
                typed = parameter.child_by_field_name("type")
                variadic = parameter.type == "variadic_parameter_declaration"
                holds = type_ref(typed, self._parameters)
                inside = holds if variadic else element_ref(typed, self._parameters)
                for name in parameter.children_by_field_name("name"):
                    scopes.declare(name_of(name), None if variadic else holds, inside)

    def _literal(self, node: Node, todo: Todo) -> None:
        """An anonymous function: its calls belong to the function around it."""
        scopes = self._scopes
        body = node.child_by_field_name("body")
        if body is None:
            return
        if scopes is None:
            self._scopes = scopes = Scopes(self._builder)
            todo.append(self._leave_scopes)
        scopes.open()
        todo.append(scopes.close)
        self._declare_parameters(node)
        todo.append(body)

    def _leave_scopes(self) -> None:
        if self._scopes is not None:
            self._scopes.settle()
        self._scopes = None

    def _named_literal(self, name: str, node: Node) -> bool:
        """``name := func() {...}``: a function like any other."""
        if self._nested >= _FUNCTIONS_NESTED_MAX:
            return False
        if self._scopes is not None:
            self._scopes.declare_function(name)
        index = self._builder.declare(
            "function",
            name,
            node,
            signature=_signature(name, node),
            returns=_returns(node, self._parameters),
        )
        self._body(index, node, None)
        return True

    @contextmanager
    def _generic(self, parameters: TypeParameters) -> Iterator[None]:
        before, self._parameters = self._parameters, {**self._parameters, **parameters}
        try:
            yield
        finally:
            self._parameters = before

    # Variables

    def _variables(self, node: Node, todo: Todo) -> None:
        names = [name_of(name) for name in node.children_by_field_name("name")]
        typed = node.child_by_field_name("type")
        listed = node.child_by_field_name("value")
        values = listed.named_children if listed is not None else []
        if typed is None:
            self._assigned(names, values, todo)
            return
        holds = type_ref(typed, self._parameters)
        inside = element_ref(typed, self._parameters)
        todo.append(lambda: self._declare_all(names, holds, inside))
        todo.extend(reversed(values))

    def _declare_all(self, names: Sequence[str], holds: Ref | None, inside: Ref | None) -> None:
        for name in names:
            self._declare(name, holds, inside)

    def _short_variables(self, node: Node, todo: Todo) -> None:
        left = node.child_by_field_name("left")
        right = node.child_by_field_name("right")
        names = [name_of(name) for name in left.named_children] if left is not None else []
        values = right.named_children if right is not None else []
        scopes = self._scopes
        # At least one of them is new; the others keep what they have.
        kept = {name for name in names if scopes is not None and scopes.known_in_block(name)}
        self._reassigned(kept)
        self._assigned(["_" if name in kept else name for name in names], values, todo)

    def _assignment(self, node: Node, todo: Todo) -> None:
        """``f = g``: what is in a variable already gets another value."""
        left = node.child_by_field_name("left")
        targets = left.named_children if left is not None else []
        self._reassigned(name_of(target) for target in targets if target.type == "identifier")
        todo.extend(reversed(node.named_children))

    def _reassigned(self, names: Iterable[str]) -> None:
        for name in names:
            if self._scopes is None or not self._scopes.assign(name):
                self._assigned_outside.add(name)

    def _assigned(
        self,
        names: Sequence[str],
        values: Sequence[Node],
        todo: Todo,
    ) -> None:
        """``names`` get ``values``, whose insides are looked at before the names exist."""
        if len(values) == len(names):
            for name, value in reversed(list(zip(names, values, strict=True))):
                is_function = value.type == "func_literal" and name != "_"
                if is_function and self._named_literal(name, value):
                    continue
                self._give(name, self._value_of(value), self._elements_of(value), todo)
                todo.append(value)
            return
        # One value for all: what a function gives back, of which the first is known.
        first = self._value_of(values[0]) if values else None
        for at, name in enumerate(names):
            self._give(name, first if at == 0 else None, None, todo)
        todo.extend(reversed(values))

    def _give(
        self,
        name: str,
        holds: Ref | None,
        inside: Ref | None,
        todo: Todo,
    ) -> None:
        todo.append(lambda: self._declare(name, holds, inside))

    def _declare(self, name: str, holds: Ref | None, inside: Ref | None = None) -> None:
        if name == "_":
            return
        if self._scopes is not None:
            self._scopes.declare(name, holds, inside)
            return
        self._builder.variable(name, holds or OPAQUE)
        if inside is not None:
            self._builder.variable(name + "[]", inside)

    def _range(self, node: Node, todo: Todo) -> None:
        left = node.child_by_field_name("left")
        right = node.child_by_field_name("right")
        if right is None:
            return
        names = [name_of(name) for name in left.named_children] if left is not None else []
        new = any(child.type == ":=" for child in node.children)
        if new and names:
            over = self._elements_of(right)
            # One variable is the index, but for a channel: then it is what comes through.
            self._give(names[0], None, None, todo)
            for name in names[1:]:
                self._give(name, over, None, todo)
        elif not new:
            self._reassigned(names)
        todo.append(right)

    def _receive(self, node: Node, todo: Todo) -> None:
        left = node.child_by_field_name("left")
        right = node.child_by_field_name("right")
        if left is not None and any(child.type == ":=" for child in node.children):
            for at, name in enumerate(left.named_children):
                value = self._value_of(right) if right is not None and at == 0 else None
                self._give(name_of(name), value, None, todo)
        if right is not None:
            todo.append(right)

    def _type_switch(self, node: Node, todo: Todo) -> None:
        alias = node.child_by_field_name("alias")
        names = [name_of(name) for name in alias.named_children] if alias is not None else []
        value = node.child_by_field_name("value")
        for part in reversed(node.named_children):
            if part.type not in ("type_case", "default_case"):
                continue
            types = part.children_by_field_name("type")
            holds = type_ref(types[0], self._parameters) if len(types) == 1 else None
            if self._scopes is not None and names:
                todo.append(self._scopes.close)
            todo.append(part)
            if self._scopes is not None and names:
                todo.append(lambda holds=holds: self._declare_all(names, holds, None))  # type: ignore[misc]
                todo.append(self._scopes.open)
        initializer = node.child_by_field_name("initializer")
        if value is not None:
            todo.append(value)
        if initializer is not None:
            todo.append(initializer)

    def _value_of(self, node: Node) -> Ref | None:
        return value(node, self._scopes, self._parameters)

    def _elements_of(self, node: Node) -> Ref | None:
        return elements(node, self._scopes, self._parameters)

    # Calls

    def _call(self, node: Node, todo: Todo) -> None:
        called = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if arguments is not None:
            todo.append(arguments)
        if called is None:
            return
        todo.append(called)
        if called.type == "func_literal":
            return
        callee = reference(node, self._scopes, self._parameters) or OPAQUE
        if self._scopes is not None:
            self._scopes.note_call(callee)
        self._builder.call(_last_name(called), callee)

    def _conversion(self, node: Node, todo: Todo) -> None:
        """``F[int](x)`` reads like the conversion to a generic type."""
        converted = node.child_by_field_name("type")
        operand = node.child_by_field_name("operand")
        if operand is not None:
            todo.append(operand)
        names = type_names(converted)
        if names and converted is not None and converted.type == "generic_type":
            self._builder.call(converted, made(names, self._scopes))

    def _composite(self, node: Node, todo: Todo) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            todo.append(body)
        names = type_names(node.child_by_field_name("type"))
        if names:
            self._builder.call(node, made(names, self._scopes))


def _receiver_parameters(typed: Node | None) -> dict[str, Ref | None]:
    """The names that ``func (l *List[T])`` gives to the parameters of List."""
    while typed is not None and typed.type in ("pointer_type", "parenthesized_type"):
        inside = typed.named_children
        typed = inside[0] if inside else None
    if typed is None or typed.type != "generic_type":
        return {}
    arguments = typed.child_by_field_name("type_arguments")
    return {} if arguments is None else {name_of(name): None for name in arguments.named_children}


def _signature(name: str, node: Node) -> str:
    generic = spelled(node.child_by_field_name("type_parameters"))
    result = spelled(node.child_by_field_name("result"))
    parameters = spelled(node.child_by_field_name("parameters"))
    return f"{name}{generic}{parameters}{' ' + result if result else ''}"


def _returns(node: Node, parameters: TypeParameters) -> Ref | None:
    """The first result of a function: the others are mostly errors."""
    result = node.child_by_field_name("result")
    if result is not None and result.type == "parameter_list":
        first = next((p for p in result.named_children if p.type == "parameter_declaration"), None)
        result = first.child_by_field_name("type") if first is not None else None
    # The caller chooses the type of a type parameter.
    return type_ref(result, dict.fromkeys(parameters))


def _last_name(called: Node) -> Node:
    """The name that is called, for its line."""
    return (
        (called.child_by_field_name("field") or called)
        if (called.type == "selector_expression")
        else called
    )
