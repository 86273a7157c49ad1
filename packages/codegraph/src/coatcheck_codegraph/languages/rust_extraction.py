"""Extracts the declarations, imports and calls of a Rust file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import tree_sitter_rust
from tree_sitter import Language, Node, Parser

from coatcheck_codegraph.builder import Builder, name_of, named, spelled, text
from coatcheck_codegraph.facts import FILE, Binding, FileFacts, Kind, Ref
from coatcheck_codegraph.language import words
from coatcheck_codegraph.languages.alternatives import hide, leave_open, obscure
from coatcheck_codegraph.languages.rust_references import RustReferences, made, path, variables
from coatcheck_codegraph.languages.rust_types import HERE, TYPE_MACROS, Holding, Types
from coatcheck_codegraph.languages.scopes import OPAQUE, Scopes

# The trees of ``use`` declarations, leaf by leaf.

_PATH_WORDS = frozenset({"identifier", "self", "super", "crate", "type_identifier"})


@dataclass(frozen=True, slots=True)
class Use:
    """One name of a ``use``: the path it has, and the name it gets here (``*``: all that is there;
    ``_``: none)."""

    node: Node
    path: tuple[str, ...]
    name: str


def uses(argument: Node | None) -> Iterator[Use]:
    """What ``a::{self, b as c, d::*}`` brings."""
    if argument is None:
        return
    todo: list[tuple[Node, tuple[str, ...]]] = [(argument, ())]
    while todo:
        node, before = todo.pop()
        kind = node.type
        if kind == "use_list":
            todo.extend((inner, before) for inner in reversed(node.named_children))
        elif kind == "scoped_use_list":
            listed = node.child_by_field_name("list")
            if listed is not None:
                todo.append((listed, before + _path(node.child_by_field_name("path"))))
        elif kind == "use_as_clause":
            path = before + _path(node.child_by_field_name("path"))
            if path:
                yield Use(node, _without_self(path), name_of(node.child_by_field_name("alias")))
        elif kind == "use_wildcard":
            inner = node.named_children
            yield Use(node, before + (_path(inner[0]) if inner else ()), "*")
        else:
            path = _without_self(before + _path(node))
            if path:
                yield Use(node, path, path[-1])


def _without_self(path: tuple[str, ...]) -> tuple[str, ...]:
    """``a::{self}`` is ``a``."""
    return path[:-1] if len(path) > 1 and path[-1] == "self" else path


def _path(node: Node | None) -> tuple[str, ...]:
    names: list[str] = []
    while node is not None:
        if node.type == "scoped_identifier":
            names.append(name_of(node.child_by_field_name("name")))
            node = node.child_by_field_name("path")
        else:
            if node.type in _PATH_WORDS:
                names.append(name_of(node))
            break
    return tuple(reversed(names))


# Items of one name in one place of a Rust file: ``#[cfg]`` keeps one of them, or traits do.
#
# ``impl From<A> for X`` and ``impl From<B> for X`` both have a ``from``; which of them
# ``X::from`` means depends on types that are not known here. A function of the type itself comes
# before those of its traits.

_COMMENTS: Final = ("line_comment", "block_comment")


class RustAlternatives:
    """The items of one file. ``is_conditional`` is whether there is a ``#[cfg]`` before the one
    that the walk has come to."""

    def __init__(self, facts: FileFacts) -> None:
        self._facts = facts
        self._items: dict[tuple[int, bool, str], list[int]] = {}
        self._conditional: set[int] = set()
        self._of_traits: set[int] = set()
        self._follows_condition = False
        self.is_conditional = False

    def is_attribute(self, node: Node) -> bool:
        """Take note of a node, before all else; whether it is but an attribute of the next."""
        if node.type == "attribute_item":
            attribute = node.named_children[0] if node.named_child_count else None
            if attribute is not None and attribute.named_child_count:
                self._follows_condition |= text(attribute.named_children[0]) == "cfg"
            return True
        if node.type not in _COMMENTS:
            self.is_conditional, self._follows_condition = self._follows_condition, False
        return False

    def declared(self, index: int, *, is_of_trait: bool = False) -> None:
        """The item is declared that the walk has come to."""
        declared = self._facts.declarations[index]
        key = (declared.parent, declared.kind == "function", declared.qualified)
        self._items.setdefault(key, []).append(index)
        if self.is_conditional:
            self._conditional.add(index)
        if is_of_trait:
            self._of_traits.add(index)

    def settle(self) -> None:
        """When the file was walked: let no name mean what may not be there."""
        classes = {
            (declared.parent, declared.name): index
            for index, declared in enumerate(self._facts.declarations)
            if declared.kind == "class"
        }
        for items in self._items.values():
            if len(items) == 1:
                continue
            if not self._conditional.isdisjoint(items):
                self._leave_open(items, classes)
            elif self._facts.declarations[items[0]].receiver is not None:
                own = [index for index in items if index not in self._of_traits]
                if len(own) == 1:
                    for index in self._of_traits.intersection(items):
                        hide(self._facts.declarations[index])
                else:
                    self._leave_open(items, classes)

    def _leave_open(self, items: list[int], classes: Mapping[tuple[int, str], int]) -> None:
        first = self._facts.declarations[items[0]]
        if first.receiver is not None and first.receiver.steps:
            owner = classes.get((first.parent, first.receiver.steps[-1].name))
            if owner is not None:
                obscure(self._facts, owner, first.name)
        leave_open(self._facts, items)


_GRAMMAR: Final = Language(tree_sitter_rust.language())
_DECLARATIONS_DEEP_MAX: Final = 20
"""Declarations inside of each other; what is nested deeper is not looked at."""

_EMPTY: Final = frozenset(
    words(
        """
        identifier field_identifier type_identifier shorthand_field_identifier self super crate
        line_comment block_comment string_literal raw_string_literal char_literal integer_literal
        float_literal boolean_literal token_tree inner_attribute_item
        visibility_modifier lifetime mutable_specifier scoped_identifier scoped_type_identifier
        generic_type reference_type primitive_type type_arguments tuple_type array_type
        function_type where_clause type_parameters function_modifiers associated_type
        empty_statement label
        """
    )
)
"""Nodes in which nothing is declared and nothing called."""

_BLOCKS: Final = frozenset(
    [
        "block",
        "if_expression",
        "while_expression",
        "for_expression",
        "match_arm",
        "closure_expression",
    ]
)
"""Nodes whose variables end with them."""

_MAKES_TYPES: Final = re.compile(rb"\b(?:struct|enum|union|trait|type)\b")

Todo = list["Node | Callable[[], None]"]


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of the Rust file at ``path``."""
    root = Parser(_GRAMMAR).parse(source).root_node
    builder = Builder(path, "rust")
    builder.facts.lines = source.count(b"\n") + (not source.endswith(b"\n") and bool(source))
    builder.facts.broken = root.has_error
    _RustFile(builder).read_file(root)
    return builder.facts


class _RustFile:
    """One walk over a file, top down, a stack of nodes in hand: code may nest without end."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._scopes: Scopes | None = None
        self._references = RustReferences(None)
        self._types = Types()
        self._modules: tuple[str, ...] = ()
        self._deep = 0
        self._implements: list[tuple[int, tuple[str, ...], Ref]] = []
        self._crates: dict[str, Node] = {}
        self._alternatives = RustAlternatives(builder.facts)
        self._handlers: Mapping[str, Callable[[Node, Todo], None]] = {
            "use_declaration": self._use,
            "extern_crate_declaration": self._extern_crate,
            "mod_item": self._module,
            "struct_item": self._struct,
            "union_item": self._struct,
            "enum_item": self._enum,
            "type_item": self._alias,
            "trait_item": self._trait,
            "impl_item": self._impl,
            "function_item": self._function,
            "function_signature_item": self._function,
            "macro_definition": self._macro,
            "macro_invocation": self._macro_call,
            "const_item": self._static,
            "static_item": self._static,
            "let_declaration": self._let,
            "let_condition": self._let,
            "assignment_expression": self._assignment,
            "for_expression": self._for,
            "match_expression": self._match,
            "closure_expression": self._closure,
            "call_expression": self._call,
            "struct_expression": self._struct_expression,
        }

    def read_file(self, root: Node) -> None:
        self._read(root)
        self._add_implemented()
        self._add_crates()
        self._alternatives.settle()

    def _read(self, root: Node) -> None:
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
            if self._alternatives.is_attribute(item):
                continue
            if kind in _BLOCKS and self._scopes is not None:
                self._scopes.open()
                todo.append(self._scopes.close)
            handler = handlers.get(kind)
            if handler is not None:
                handler(item, todo)
            else:
                todo.extend(reversed(item.named_children))

    # What is in other files

    def _use(self, node: Node, _todo: Todo) -> None:
        around = self._builder.here_declared
        is_public = node.named_children[0].type == "visibility_modifier"
        for use in uses(node.child_by_field_name("argument")):
            names = self._types.normal(use.path)
            if not names:
                continue
            if use.name == "*":
                bindings = [Binding("*", "*")]
            else:
                bindings = [Binding(use.name)] if use.name != "_" else []
            module = "::".join(names).replace(HERE + "::", "self::", 1)
            exported = use.name != "*" or is_public
            self._builder.imports(use.node, module, bindings, kind="use", exported=exported)
            if around is not None and around.kind == "namespace" and bindings[:1] != [_EVERYTHING]:
                # What a module inside a file brings can be had through its name.
                around.fields.setdefault(use.name, path(names, called=False))

    def _extern_crate(self, node: Node, _todo: Todo) -> None:
        name = name_of(node.child_by_field_name("name"))
        local = name_of(node.child_by_field_name("alias")) or name
        if name and name != "self":
            bindings = [Binding(local)] if local != "_" else []
            self._builder.imports(node, name, bindings, kind="crate", exported=True)

    def _module(self, node: Node, _todo: Todo) -> None:
        name = name_of(node.child_by_field_name("name"))
        body = node.child_by_field_name("body")
        if not name or self._deep >= _DECLARATIONS_DEEP_MAX:
            return
        if body is None:
            where = "::".join((*self._modules, name))
            kind = f"mod {_path_attribute(node)}".rstrip()
            self._builder.imports(node, where, [Binding(name)], kind=kind, exported=True)
            return
        index = self._builder.declare("namespace", name, node)
        self._alternatives.declared(index)
        modules = self._modules
        self._modules = (*modules, name)
        with self._declaring(index, Types(modules=self._modules)):
            self._read(body)
        self._modules = modules

    # Types

    def _struct(self, node: Node, _todo: Todo) -> None:
        index, types = self._declare_type("class", node, node.type.removesuffix("_item"))
        body = node.child_by_field_name("body")
        if body is None:
            return
        with self._builder.inside(index):
            self._fields(body, types)

    def _fields(self, body: Node, types: Types) -> None:
        position = 0
        for field in body.named_children:
            if field.type == "field_declaration":
                self._field(
                    name_of(field.child_by_field_name("name")),
                    types.holding(field.child_by_field_name("type")),
                )
            elif body.type == "ordered_field_declaration_list" and field.type not in (
                "visibility_modifier",
                "attribute_item",
                "line_comment",
                "block_comment",
            ):
                self._field(str(position), types.holding(field))
                position += 1

    def _field(self, name: str, holding: Holding) -> None:
        field = self._builder.field
        field(name, holding.value or OPAQUE)
        field(name + "!", holding.itself or OPAQUE)
        if holding.unwrapped is not None:
            field(name + "?", holding.unwrapped)
        if holding.element is not None:
            field(name + "[]", holding.element)

    def _enum(self, node: Node, _todo: Todo) -> None:
        index, _ = self._declare_type("class", node, "enum")
        itself = named(name_of(node.child_by_field_name("name")), is_type=True)
        body = node.child_by_field_name("body")
        with self._builder.inside(index):
            for variant in body.named_children if body is not None else ():
                if variant.type == "enum_variant":
                    self._builder.field(name_of(variant.child_by_field_name("name")), itself)

    def _alias(self, node: Node, _todo: Todo) -> None:
        index, types = self._declare_type("type", node, "type")
        self._builder.facts.declarations[index].returns = types.ref(
            node.child_by_field_name("type")
        )

    def _trait(self, node: Node, _todo: Todo) -> None:
        index, types = self._declare_type("class", node, "trait")
        bounds = node.child_by_field_name("bounds")
        bases = [types.ref(bound) for bound in (bounds.named_children if bounds else ())]
        self._builder.facts.declarations[index].bases = tuple(base for base in bases if base)
        body = node.child_by_field_name("body")
        if body is not None and self._deep < _DECLARATIONS_DEEP_MAX:
            with self._declaring(index, types):
                self._read(body)

    def _declare_type(self, kind: Kind, node: Node, word: str) -> tuple[int, Types]:
        name = name_of(node.child_by_field_name("name"))
        generic = node.child_by_field_name("type_parameters")
        types = self._types.inside(generic, _where(node), own=(name,))
        signature = f"{word} {name}{spelled(generic)}"
        index = self._builder.declare(kind, name, node, signature=signature)
        self._alternatives.declared(index)
        return index, types

    def _impl(self, node: Node, _todo: Todo) -> None:
        body = node.child_by_field_name("body")
        if self._deep >= _DECLARATIONS_DEEP_MAX:
            return
        of = node.child_by_field_name("type")
        types = self._types.inside(node.child_by_field_name("type_parameters"), _where(node))
        ref = types.unbound().ref(of)
        own = tuple(step.name for step in ref.steps) if ref is not None else ()
        types = types.inside(None, None, own=own) if own else types
        trait = types.ref(node.child_by_field_name("trait"))
        if trait is not None and own:
            self._implements.append((self._builder.here, own, trait))
        if body is None:
            return
        receiver = named(*own, is_type=True) if own else OPAQUE
        before = self._types, self._deep
        self._types, self._deep = types, self._deep + 1
        is_conditional = self._alternatives.is_conditional
        for item in body.named_children:
            if self._alternatives.is_attribute(item):
                continue
            if item.type in ("function_item", "function_signature_item"):
                self._alternatives.is_conditional |= is_conditional
                self._declare_function(item, receiver, is_of_trait=trait is not None)
            elif item.type in ("const_item", "macro_invocation"):
                self._read(item)
        self._types, self._deep = before

    def _add_implemented(self) -> None:
        """``impl Trait for X`` makes Trait a base of X, if X is of this file."""
        declarations = self._builder.facts.declarations
        places = {
            (declared.parent, declared.name): declared
            for declared in reversed(declarations)
            if declared.kind == "class"
        }
        for place, own, trait in self._implements:
            of_file = own[0] == HERE and len(own) == 2
            declared = places.get((FILE if of_file else place, own[-1]))
            if len(own) > 1 and not of_file:
                continue
            if declared is not None and trait not in declared.bases:
                declared.bases = (*declared.bases, trait)

    # Functions

    def _function(self, node: Node, _todo: Todo) -> None:
        self._declare_function(node, None)

    def _declare_function(
        self, node: Node, receiver: Ref | None, *, is_of_trait: bool = False
    ) -> None:
        name = name_of(node.child_by_field_name("name"))
        generic = node.child_by_field_name("type_parameters")
        parameters = node.child_by_field_name("parameters")
        result = node.child_by_field_name("return_type")
        types = self._types.inside(generic, _where(node))
        arrow = f" -> {spelled(result)}" if result is not None else ""
        index = self._builder.declare(
            "function",
            name,
            node,
            signature=f"{name}{spelled(generic)}{spelled(parameters)}{arrow}",
            receiver=receiver,
            returns=types.unbound().returned(result),
            static=_is_static(parameters, receiver),
        )
        if receiver is not None:
            self._qualify(index, receiver)
        self._alternatives.declared(index, is_of_trait=is_of_trait)
        body = node.child_by_field_name("body")
        if self._deep >= _DECLARATIONS_DEEP_MAX:
            return
        before = self._scopes, self._references
        self._scopes = Scopes(self._builder)
        self._references = RustReferences(self._scopes)
        with self._declaring(index, types):
            if types.own:
                self._references.declare("self", types.holding_own())
            self._declare_parameters(parameters)
            if body is not None:
                self._read(body)
        self._scopes.settle()
        self._scopes, self._references = before

    def _qualify(self, index: int, receiver: Ref) -> None:
        """A method is named with its type and the modules around the ``impl``."""
        declared = self._builder.facts.declarations[index]
        owner = [step.name for step in receiver.steps if step.name not in (HERE, "crate")]
        around = self._builder.here_declared
        names = [*([around.qualified] if around is not None else []), *owner, declared.name]
        declared.qualified = ".".join(names)

    @contextmanager
    def _declaring(self, index: int, types: Types) -> Iterator[None]:
        before = self._types
        self._types = types
        self._deep += 1
        with self._builder.inside(index):
            yield
        self._deep -= 1
        self._types = before

    def _declare_parameters(self, parameters: Node | None) -> None:
        for parameter in parameters.named_children if parameters is not None else ():
            pattern = parameter.child_by_field_name("pattern")
            typed = parameter.child_by_field_name("type")
            if parameter.type == "parameter" and pattern is not None and pattern.type != "self":
                self._declare_pattern(pattern, self._types.holding(typed))
            elif parameter.type == "identifier":
                self._declare_pattern(parameter, None)

    def _closure(self, node: Node, todo: Todo) -> None:
        """A function without a name: what it calls, the one around calls."""
        body = node.child_by_field_name("body")
        if body is not None:
            todo.append(body)
        if self._scopes is not None:
            for parameter in _closure_parameters(node):
                if parameter.type == "parameter":
                    typed = parameter.child_by_field_name("type")
                    pattern = parameter.child_by_field_name("pattern")
                    self._declare_pattern(pattern, self._types.holding(typed))
                else:
                    self._declare_pattern(parameter, None)

    def _named_closure(self, name: str, node: Node) -> bool:
        """``let name = |x| ...``: a function like any other."""
        if self._deep >= _DECLARATIONS_DEEP_MAX or self._scopes is None:
            return False
        result = node.child_by_field_name("return_type")
        parameters = node.child_by_field_name("parameters")
        arrow = f" -> {spelled(result)}" if result is not None else ""
        self._scopes.declare_function(name)
        index = self._builder.declare(
            "function",
            name,
            node,
            signature=f"{name}({spelled(parameters).strip('|')}){arrow}",
            returns=self._types.returned(result),
        )
        with self._declaring(index, self._types):
            self._read(node)
        return True

    # Variables

    def _static(self, node: Node, todo: Todo) -> None:
        value = node.child_by_field_name("value")
        if value is not None:
            todo.append(value)
        name = name_of(node.child_by_field_name("name"))
        holding = self._types.holding(node.child_by_field_name("type"))
        around = self._builder.here_declared
        if self._scopes is not None:
            self._references.declare(name, holding)
        elif around is None and self._types.own == ():
            self._builder.variable(name, holding.value or OPAQUE)

    def _let(self, node: Node, todo: Todo) -> None:
        pattern = node.child_by_field_name("pattern")
        typed = node.child_by_field_name("type")
        value = node.child_by_field_name("value")
        otherwise = node.child_by_field_name("alternative")
        if otherwise is not None:
            todo.append(otherwise)
        if pattern is not None and self._scopes is not None:
            is_name = pattern.type == "identifier"
            is_closure = is_name and value is not None and value.type == "closure_expression"
            if value is not None and is_closure and self._named_closure(name_of(pattern), value):
                return
            if typed is not None:
                holding: Holding | Ref | None = self._types.holding(typed)
            else:
                holding = self._references.value(value, self._types) if value is not None else None
                holding = self._held(value, holding)
            todo.append(lambda: self._declare_pattern(pattern, holding))
        if value is not None:
            todo.append(value)

    def _assignment(self, node: Node, todo: Todo) -> None:
        """``f = g``: what is in a variable already gets another value."""
        left = node.child_by_field_name("left")
        if left is not None and left.type == "identifier" and self._scopes is not None:
            self._scopes.assign(name_of(left))
        todo.extend(reversed(node.named_children))

    def _held(self, value: Node | None, held: Ref | None) -> Holding | Ref | None:
        """A struct that is made here is one without a wrapper around it."""
        if value is None or value.type != "struct_expression":
            return held
        names = made(self._types.path(value.child_by_field_name("name")))
        ref = named(*names, is_type=True) if names else None
        return Holding(ref, ref)

    def _for(self, node: Node, todo: Todo) -> None:
        value = node.child_by_field_name("value")
        body = node.child_by_field_name("body")
        pattern = node.child_by_field_name("pattern")
        if body is not None:
            todo.append(body)
        if pattern is not None and value is not None and self._scopes is not None:
            over = self._references.elements(value, self._types)
            todo.append(lambda: self._declare_pattern(pattern, over))
        if value is not None:
            todo.append(value)

    def _match(self, node: Node, todo: Todo) -> None:
        value = node.child_by_field_name("value")
        body = node.child_by_field_name("body")
        held = None
        if value is not None and self._scopes is not None:
            held = self._references.value(value, self._types)
        for arm in reversed(body.named_children if body is not None else ()):
            if arm.type != "match_arm" or self._scopes is None:
                todo.append(arm)
                continue
            pattern = arm.child_by_field_name("pattern")
            todo.append(self._scopes.close)
            todo.extend(part for part in reversed(arm.named_children) if part != pattern)
            for part in pattern.named_children[1:] if pattern is not None else ():
                todo.append(part)  # the condition of an arm
            if pattern is not None and pattern.named_children:
                first = pattern.named_children[0]
                todo.append(lambda first=first: self._declare_pattern(first, held))  # type: ignore[misc]
            todo.append(self._scopes.open)
        if value is not None:
            todo.append(value)

    def _declare_pattern(self, pattern: Node | None, holds: Holding | Ref | None) -> None:
        if self._scopes is None or pattern is None:
            return
        for name, held in variables(pattern, holds, self._references):
            if isinstance(held, Holding):
                self._references.declare(name, held)
            else:
                self._scopes.declare(name, held)

    # Calls

    def _call(self, node: Node, todo: Todo) -> None:
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if arguments is not None:
            todo.append(arguments)
        if function is None:
            return
        if function.type == "generic_function":
            function = function.child_by_field_name("function") or function
        todo.append(function)
        if function.type == "closure_expression":
            return
        callee = self._references.callee(node, self._types) or OPAQUE
        if function.type == "scoped_identifier":
            self._note_crate(callee, node)
        if self._scopes is not None:
            self._scopes.note_call(callee)
        at = function.child_by_field_name("field") if function.type == "field_expression" else None
        self._builder.call(at or function, callee)

    def _struct_expression(self, node: Node, todo: Todo) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            todo.append(body)
        names = made(self._types.path(node.child_by_field_name("name")))
        if names:
            callee = path(names, called=True)
            self._note_crate(callee, node)
            self._builder.call(node, callee)

    def _macro(self, node: Node, _todo: Todo) -> None:
        name = name_of(node.child_by_field_name("name"))
        index = self._builder.declare(
            "function", name + "!", node, signature=f"macro_rules! {name}"
        )
        self._alternatives.declared(index)
        if node.text is not None and _MAKES_TYPES.search(node.text):
            properties = self._builder.facts.properties
            properties[TYPE_MACROS] = f"{properties.get(TYPE_MACROS, '')} {name}!".strip()

    def _macro_call(self, node: Node, _todo: Todo) -> None:
        """What a macro gets is not parsed: it may be anything."""
        names = self._types.path(node.child_by_field_name("macro"))
        if not names:
            return
        if len(names) > 1 and names[0] not in ("crate", HERE) and not names[0].startswith("super"):
            callee = path((*names[:-1], names[-1] + "!"), called=True)
        elif len(names) == 1 and self._is_foreign(names[0]):
            callee = path(names, called=True)
        else:
            callee = path((names[-1] + "!",), called=True)
        self._note_crate(callee, node)
        self._builder.call(node, callee)

    def _is_foreign(self, name: str) -> bool:
        """Whether an import brings ``name`` that may be from another crate."""
        return any(
            binding.local == name
            for imported in self._builder.facts.imports
            if imported.module.partition("::")[0] not in ("crate", "self", "super")
            for binding in imported.bindings
        )

    def _note_crate(self, callee: Ref, node: Node) -> None:
        """Other crates may be named without being imported."""
        steps = callee.steps
        if callee.base != "name" or len(steps) < 2 or steps[0].called:
            return
        name = steps[0].name
        if not name.isidentifier() or not name.islower():
            return
        if self._scopes is None or not self._scopes.known(name):
            self._crates.setdefault(name, node)

    def _add_crates(self) -> None:
        facts = self._builder.facts
        known = {binding.local for imported in facts.imports for binding in imported.bindings}
        known.update(declared.name for declared in facts.declarations)
        known.update(facts.variables)
        known.update(("self", "super", "crate"))
        for name, node in self._crates.items():
            if name not in known and name not in _PRIMITIVES:
                self._builder.imports(node, name, [Binding(name)], kind="named")


_EVERYTHING: Final = Binding("*", "*")
_PRIMITIVES: Final = frozenset(
    words(
        """
        bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 std core alloc
        """
    )
)


def _where(node: Node) -> Node | None:
    for child in node.named_children:
        if child.type == "where_clause":
            return child
    return None


def _is_static(parameters: Node | None, receiver: Ref | None) -> bool:
    if receiver is None or parameters is None:
        return False
    first = parameters.named_children[:1]
    return not (
        first
        and (
            first[0].type == "self_parameter"
            or text(first[0].child_by_field_name("pattern")) == "self"
        )
    )


def _closure_parameters(node: Node) -> list[Node]:
    parameters = node.child_by_field_name("parameters")
    return parameters.named_children if parameters is not None else []


def _path_attribute(node: Node) -> str:
    """Of ``#[path = "x.rs"] mod y;``."""
    before = node.prev_named_sibling
    while before is not None and before.type == "attribute_item":
        attribute = before.named_children[0] if before.named_children else None
        inside = attribute.named_children if attribute is not None else []
        if attribute is not None and inside and text(inside[0]) == "path":
            value = attribute.child_by_field_name("value")
            return text(value).strip('"') if value is not None else ""
        before = before.prev_named_sibling
    return ""
