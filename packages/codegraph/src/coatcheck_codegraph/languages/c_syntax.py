"""Helpers for C and C++ syntax: declarators, references, signatures, argument counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, named
from coatcheck_codegraph.facts import Base, Ref, Step

# C's declarators, read from the outside in: ``*(*table[3])(int)`` says that ``table`` is an
# array.
#
# C++ declares the same way, with qualified names and operators besides.

TOP: Final = "::"
"""Where names are that no namespace has."""

_NESTING_MAX: Final = 64
_THROUGH: Final = frozenset(
    {
        "attributed_declarator",
        "init_declarator",
        "ms_based_modifier",
        "parenthesized_declarator",
        "template_declaration",
    }
)
_INDIRECT: Final = frozenset({"array_declarator", "pointer_declarator", "reference_declarator"})
_MARKS: Final = {"pointer_declarator": "*", "reference_declarator": "&"}
_DECLARED_NAMES: Final = frozenset(
    {"destructor_name", "field_identifier", "identifier", "operator_name", "type_identifier"}
)


@dataclass(frozen=True, slots=True)
class Declarator:
    """A declared name. ``scope`` is what stands before it: ``a::B::`` in ``int a::B::f()``.

    ``function`` is the node that has the parameters, if the name is a function's; ``callable``
    says that the name is a variable that can be called, a pointer to a function. ``marks`` are the
    ``*`` and ``&`` before the name.
    """

    name: str
    scope: tuple[str, ...]
    function: Node | None
    callable: bool
    marks: str
    is_array: bool

    @property
    def is_repeated(self) -> bool:
        """Whether there may be several of it in a row."""
        return self.is_array or "*" in self.marks

    @property
    def is_indirect(self) -> bool:
        return self.is_array or bool(self.marks)


def declarator_of(node: Node | None) -> Declarator | None:
    """What a declarator declares; None if it has no name, as parameters may not."""
    function: Node | None = None
    callable_ = is_array = False
    marks = ""
    for _ in range(_NESTING_MAX):
        if node is None:
            return None
        kind = node.type
        if kind in _DECLARED_NAMES:
            return Declarator(name_of(node), (), function, callable_, marks, is_array)
        if kind == "function_declarator":
            function = node
            node = node.child_by_field_name("declarator")
        elif kind in _INDIRECT:
            is_array = is_array or kind == "array_declarator"
            marks += _MARKS.get(kind, "")
            if function is not None:
                function, callable_ = None, True
            node = node.child_by_field_name("declarator") or _last_named(node)
        elif kind in _THROUGH:
            node = node.child_by_field_name("declarator") or _last_named(node)
        elif kind == "qualified_identifier":
            *scope, name = (each for each in qualified_names(node) if each != TOP)
            function = function or _conversion(node)
            return Declarator(name, tuple(scope), function, callable_, marks, is_array)
        elif kind == "template_function":
            node = node.child_by_field_name("name")
        elif kind == "operator_cast":
            return Declarator(_operator_name(node), (), _last_named(node), False, "", False)
        else:
            return None
    return None


def qualified_names(node: Node | None) -> list[str]:
    """``a::B<int>::c`` as its names, without template arguments; ``::c`` from the TOP.

    Never empty.
    """
    names: list[str] = []
    for _ in range(_NESTING_MAX):
        if node is None:
            break
        kind = node.type
        if kind == "qualified_identifier":
            scope = node.child_by_field_name("scope")
            names += [TOP] if scope is None else _plain_names(scope)
            node = node.child_by_field_name("name")
        else:
            names += _plain_names(node)
            break
    return names or [""]


def _plain_names(node: Node) -> list[str]:
    kind = node.type
    if kind in ("template_type", "template_function", "template_method"):
        return [name_of(node.child_by_field_name("name"))]
    if kind in ("dependent_name", "dependent_type"):
        inner = _last_named(node)
        return qualified_names(inner) if inner is not None else []
    if kind == "operator_cast":
        return [_operator_name(node)]
    if kind == "nested_namespace_specifier":
        return [name_of(child) for child in node.named_children]
    return [name_of(node)]


def _conversion(node: Node) -> Node | None:
    """The parameters of ``A::operator bool() const``, which stand inside of the name."""
    last: Node | None = node
    while last is not None and last.type == "qualified_identifier":
        last = last.child_by_field_name("name")
    return _last_named(last) if last is not None and last.type == "operator_cast" else None


def _operator_name(node: Node) -> str:
    return f"operator {name_of(node.child_by_field_name('type'))}"


def _last_named(node: Node) -> Node | None:
    count = node.named_child_count
    return node.named_child(count - 1) if count else None


# References in expressions and types of C and C++.

ELEMENT: Final = "[]"
"""The suffix that makes the name of a collection the name of its elements."""

CASTS: Final = frozenset({"const_cast", "dynamic_cast", "reinterpret_cast", "static_cast"})
_MAKERS: Final = frozenset({"make_shared", "make_unique"})
_POINTERS: Final = frozenset({"shared_ptr", "unique_ptr"})
_COLLECTIONS: Final = frozenset(
    {"array", "deque", "forward_list", "initializer_list", "list", "set", "span", "unordered_set"}
    | {"vector"}
)
_STEPS_MAX: Final = 48
_USED_NAMES: Final = frozenset(
    {"field_identifier", "identifier", "namespace_identifier", "primitive_type", "type_identifier"}
)
_UNWRAPPED: Final = frozenset({"parenthesized_expression", "pointer_expression"})


def reference_of(node: Node | None) -> tuple[Ref, Node | None]:
    """The names of an expression, and the node of the last of them."""
    steps: list[Step] = []
    last: Node | None = None
    called = False
    element = ""
    base: Base = "opaque"
    for _ in range(_STEPS_MAX):
        if node is None:
            break
        kind = node.type
        if kind in _USED_NAMES:
            last = last or node
            steps.append(Step(name_of(node) + element, called))
            base = "name"
            break
        if kind == "field_expression":
            field = node.child_by_field_name("field")
            last = last or field
            steps.append(Step(qualified_names(field)[-1] + element, called))
            called, element = False, ""
            node = node.child_by_field_name("argument")
        elif kind == "call_expression" and not called and not element:
            function = node.child_by_field_name("function")
            made = made_by(function)
            if made is not None:
                steps.extend(reversed(made.steps))
                base = "name"
                break
            called = True
            node = function
        elif kind in ("qualified_identifier", "template_function"):
            last = last or node
            *scope, name = qualified_names(node)
            steps.append(Step(name + element, called))
            steps.extend(Step(part) for part in reversed(scope))
            base = "name"
            break
        elif kind == "this" and not called and not element:
            base = "self"
            break
        elif kind in _UNWRAPPED:
            node = node.child_by_field_name("argument") or node.named_child(0)
        elif kind == "subscript_expression" and not called:
            element += ELEMENT
            node = node.child_by_field_name("argument")
        elif kind in ("cast_expression", "compound_literal_expression", "new_expression"):
            # The value is an instance of the type, as if it had been constructed.
            made = None if called or element else constructed(node.child_by_field_name("type"))
            if made is not None:
                last = last or node
                steps.extend(reversed(made.steps))
                base = "name"
            break
        else:
            break
    return Ref(base, tuple(reversed(steps))), last


def made_by(function: Node | None) -> Ref | None:
    """What ``static_cast<Foo *>`` or ``std::make_unique<Foo>`` gives, as a construction of Foo."""
    template = _template(function, "template_function")
    if template is None:
        return None
    if name_of(template.child_by_field_name("name")) not in CASTS | _MAKERS:
        return None
    return constructed(_first_argument(template))


def is_cast(function: Node | None) -> bool:
    """Whether what looks like a call only changes a value's type."""
    return (
        function is not None
        and function.type == "template_function"
        and name_of(function.child_by_field_name("name")) in CASTS
    )


def type_of(node: Node | None) -> Ref | None:
    """A type by its names; None for those that are built in. A smart pointer is what it owns."""
    for _ in range(_STEPS_MAX):
        if node is None:
            return None
        kind = node.type
        if kind == "type_identifier":
            return named(name_of(node), is_type=True)
        if kind in ("qualified_identifier", "template_type"):
            owned = _owned_by(node)
            if owned is None:
                return named(*qualified_names(node), is_type=True)
            node = owned
        elif kind in (
            "class_specifier",
            "enum_specifier",
            "struct_specifier",
            "union_specifier",
        ):
            names = qualified_names(node.child_by_field_name("name"))
            return named(*names, is_type=True) if names[-1] else None
        elif kind in ("type_descriptor", "dependent_type"):
            node = node.child_by_field_name("type") or node.named_child(0)
        else:
            return None
    return None


def constructed(node: Node | None) -> Ref | None:
    """A construction of the type ``node``."""
    written = type_of(node)
    return None if written is None else named(*(step.name for step in written.steps), called=True)


def element_type_of(node: Node | None) -> Ref | None:
    """What a collection of the type ``node`` has in it: Foo, if it is ``std::vector<Foo>``."""
    template = _template(node, "template_type")
    if template is None or name_of(template.child_by_field_name("name")) not in _COLLECTIONS:
        return None
    return type_of(_first_argument(template))


def is_smart_pointer(node: Node | None) -> bool:
    return node is not None and _owned_by(node) is not None


def _owned_by(node: Node) -> Node | None:
    template = _template(node, "template_type")
    if template is None or name_of(template.child_by_field_name("name")) not in _POINTERS:
        return None
    return _first_argument(template)


def _template(node: Node | None, kind: str) -> Node | None:
    """The template that a name, qualified or not, ends with."""
    for _ in range(_STEPS_MAX):
        if node is None or node.type != "qualified_identifier":
            break
        node = node.child_by_field_name("name")
    return node if node is not None and node.type == kind else None


def _first_argument(template: Node) -> Node | None:
    arguments = template.child_by_field_name("arguments")
    return None if arguments is None else arguments.named_child(0)


# Functions of C and C++ as they are declared: the types of parameters and result, their names.
#
# Nothing else of the text may get out: no literal, no default value, no size of an array, and
# nothing of what the parser could not make sense of.

_COMMENTS: Final = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
_LITERALS: Final = re.compile(r"""\b\d[\w.']*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
_SIZES: Final = re.compile(r"\[[^\[\]]*\]")
_BODIES: Final = re.compile(r"\{.*", re.DOTALL)
_SPACED: Final = re.compile(r"\s+")


def signature_of(result: str, declarator: Declarator) -> str:
    """``int parse(const char *text, size_t length)``: no default value, no literal, no body."""
    listed = _parameters_of(declarator.function)
    written = f"{result} {declarator.marks}{declarator.name}({listed})".strip()
    return " ".join([written, *_qualifiers_of(declarator.function)])


def _qualifiers_of(function: Node | None) -> list[str]:
    """What a method says of its object: ``const``, by which two of one name may differ."""
    after = [] if function is None else function.named_children
    return [name_of(each) for each in after if each.type in ("type_qualifier", "ref_qualifier")]


def lambda_signature(name: str, node: Node) -> str:
    """``name(int x)``, for a function that has no name but that of the variable that holds it."""
    return f"{name}({_parameters_of(node.child_by_field_name('declarator'))})"


def _parameters_of(node: Node | None) -> str:
    listed = None if node is None else node.child_by_field_name("parameters")
    return ", ".join(
        _parameter_text(parameter)
        for parameter in ([] if listed is None else listed.named_children)
        if parameter.type not in ("comment", "ERROR")
    )


def result_text(node: Node, written: Node | None) -> str:
    return _type_text(_after_macro(node) or written)


def result_type(node: Node, declared: Declarator, written: Node | None) -> Ref | None:
    if written is not None and written.type == "placeholder_type_specifier":
        inside = [] if declared.function is None else declared.function.named_children
        for child in inside:
            if child.type == "trailing_return_type":
                return type_of(child.named_child(0))
    misplaced = _after_macro(node)
    return type_of(written) if misplaced is None else named(name_of(misplaced), is_type=True)


def _after_macro(node: Node) -> Node | None:
    """The type in ``API_MACRO type name();``, where the macro is taken for the type."""
    for child in node.named_children:
        if child.type == "ERROR" and child.named_child_count == 1:
            found = child.named_child(0)
            return found if found is not None and found.type == "identifier" else None
    return None


def without_literals(written: str) -> str:
    """Declarations as they are written, without what says more than names and types."""
    bare = _LITERALS.sub("", _COMMENTS.sub(" ", written))
    return _SPACED.sub(" ", _BODIES.sub("", _SIZES.sub("[]", bare))).strip()


def _type_text(node: Node | None) -> str:
    """A type as it is written, without what a struct has inside."""
    if node is None or node.has_error:
        return ""
    body = node.child_by_field_name("body")
    end = node.end_byte if body is None else body.start_byte
    return without_literals(_decoded(node, end))


def _parameter_text(node: Node) -> str:
    if node.has_error:
        return "_"
    default = node.child_by_field_name("default_value")
    if default is None:
        return without_literals(_decoded(node, node.end_byte))
    return without_literals(_decoded(node, default.start_byte)).removesuffix("=").rstrip()


def _decoded(node: Node, end: int) -> str:
    """The text of a node up to the byte ``end`` of the file."""
    return (node.text or b"")[: end - node.start_byte].decode("utf-8", "replace")


# The number of arguments of a call and of a function of C++, which distinguishes overloads.

_ANY: Final = (0, -1)
_UNCOUNTED: Final = frozenset({"parameter_pack_expansion", "ERROR"})
_MADE_OF_MANY: Final = "initializer_list"


def arguments_in(given: Node | None) -> int:
    """How many there are between parentheses or braces; -1 if only the compiler can tell.

    Of what looks like a prototype and is none, ``Parser parser(text);``, the same.
    """
    if given is None:
        return 0
    listed = [child for child in given.named_children if not child.is_extra]
    kinds = {child.type for child in listed}
    if given.has_error or kinds & _UNCOUNTED or any(kind.startswith("preproc") for kind in kinds):
        return -1
    return len(listed)


def parameters_of(function: Node | None) -> tuple[int, int]:
    """How many arguments a function takes, at least and at most (-1: any number)."""
    listed = None if function is None else function.child_by_field_name("parameters")
    if listed is None or listed.has_error:
        return _ANY
    least = most = 0
    takes_more = False
    for child in listed.children:
        match child.type:
            case "parameter_declaration":
                if _made_of_many(child):
                    return _ANY  # braces give it as many as they like
                if not _is_void(child):
                    least, most = least + 1, most + 1
            case "optional_parameter_declaration":
                most += 1
            case "variadic_parameter_declaration" | "variadic_parameter" | "...":
                takes_more = True
            case kind if kind.startswith("preproc"):
                return _ANY
    return (least, -1 if takes_more else most)


def _is_void(parameter: Node) -> bool:
    """``f(void)`` takes nothing."""
    written = parameter.child_by_field_name("type")
    without_name = parameter.child_by_field_name("declarator") is None
    return without_name and written is not None and name_of(written) == "void"


def _made_of_many(parameter: Node) -> bool:
    written = parameter.child_by_field_name("type")
    return written is not None and qualified_names(written)[-1] == _MADE_OF_MANY
