"""Reads the declarations and calls of a C or C++ file. C++'s grammar includes C's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import msgspec
import tree_sitter_c
import tree_sitter_cpp
from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from coatcheck_codegraph.builder import Builder, end_line_of, line_of, name_of, named, text
from coatcheck_codegraph.extraction import UNKNOWN, Extraction, Handler, lines_in
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts, Ref, Step
from coatcheck_codegraph.language import words
from coatcheck_codegraph.languages.alternatives import Conditions, hide, leave_open, obscure
from coatcheck_codegraph.languages.c_builtins import C_FUNCTIONS
from coatcheck_codegraph.languages.c_syntax import (
    ELEMENT,
    Declarator,
    arguments_in,
    constructed,
    declarator_of,
    element_type_of,
    is_cast,
    is_smart_pointer,
    lambda_signature,
    made_by,
    parameters_of,
    qualified_names,
    reference_of,
    result_text,
    result_type,
    signature_of,
    type_of,
    without_literals,
)
from coatcheck_codegraph.languages.scopes import element

# Declarations of C and C++ under preprocessor conditions.
#
# Which of the branches of an ``#if`` are kept is not known here. So what only one of them has is
# not certain where its name may come from elsewhere, too: from another branch, or from the
# standard library. A macro may come from any header: it is certain under its own condition alone.
# The guard of a header is no condition: what it keeps out was there before.

_CPLUSPLUS_CONDITION: Final = re.compile(r"__cplusplus|defined *\(? *__cplusplus *\)?")
_WORD: Final = re.compile(r"\w+")
_PARAMETER_NAME: Final = re.compile(r"(?<=[\s*&>])\w+(?=\s*(?:,|\)))")


class CConditions:
    """The conditions of one file, and what was declared under them.

    ``plus_plus`` tells that functions of one name may be overloads: those have other parameters.
    """

    def __init__(self, facts: FileFacts, *, plus_plus: bool) -> None:
        self._facts = facts
        self._plus_plus = plus_plus
        self._conditions = Conditions()
        self._conditional: set[int] = set()
        self._other_language: set[int] = set()
        self._macros: dict[int, tuple[int, int]] = {}
        """By a macro, the lines of the condition that it is under."""
        self._foreign: tuple[int, int] = (0, 0)
        self._defined: dict[tuple[int, str, str], list[int]] = {}
        self._renamed: set[str] = set()

    def enter(self, node: Node) -> None:
        """An ``#if`` begins, unless it is one that always holds."""
        if node.type == "preproc_elif" or _is_guard(node):
            return
        if _CPLUSPLUS_CONDITION.fullmatch(text(_condition_of(node))):
            self._enter_language(node)
        else:
            self._conditions.enter(node)

    def _enter_language(self, node: Node) -> None:
        """``#ifdef __cplusplus``: whether that holds is known, but for a header of both."""
        if any(child.type == "linkage_specification" for child in node.named_children):
            return  # its end is under another condition, and all between them seems to be in this
        otherwise = node.child_by_field_name("alternative")
        if otherwise is None:
            return
        boundary = line_of(otherwise)
        if self._plus_plus:
            self._foreign = (boundary, end_line_of(node))
        else:
            self._foreign = (line_of(node), boundary)

    def declared(self, index: int, node: Node) -> None:
        """A function is defined here, or a type."""
        declared = self._facts.declarations[index]
        what = "function" if declared.kind == "function" else "type"
        key = (declared.parent, what, declared.qualified)
        self._defined.setdefault(key, []).append(index)
        if self._foreign[0] <= declared.line < self._foreign[1]:
            self._other_language.add(index)
        if self._conditions.hold_for(node, self._around(declared)):
            self._conditional.add(index)

    def macro(self, index: int, node: Node) -> None:
        """A macro with parameters is defined here."""
        self.declared(index, node)
        self._macros[index] = self._conditions.innermost if index in self._conditional else (0, 0)

    def renamed(self, name: str, node: Node) -> bool:
        """Whether a macro that gives another name to something does so under a condition."""
        if not self._conditions.hold_for(node, None):
            return False
        self._renamed.add(name)
        return True

    def settle(self) -> None:
        """After the walk: hide declarations that may not exist."""
        for name in self._renamed - C_FUNCTIONS:
            obscure(self._facts, FILE, name)
        certain_in: dict[str, tuple[int, int]] = {}
        for (parent, what, _), defined in self._defined.items():
            found = self._without_other_language(defined)
            if self._conditional.isdisjoint(found):
                continue
            name = self._facts.declarations[found[0]].name
            if parent == FILE and what == "function" and name in C_FUNCTIONS:
                for index in self._conditional.intersection(found):
                    hide(self._facts.declarations[index])
            elif parent == FILE and name in self._renamed:
                leave_open(self._facts, found)
            elif len(found) > 1:
                leave_open(self._facts, self._alternatives(found))
            elif found[0] in self._macros:
                obscure(self._facts, parent, name)
                certain_in[name] = self._macros[found[0]]
        self._obscure_calls(certain_in)

    def _obscure_calls(self, certain_in: Mapping[str, tuple[int, int]]) -> None:
        calls = self._facts.calls
        for at, call in enumerate(calls if certain_in else ()):
            steps = call.callee.steps
            first, last = certain_in.get(steps[0].name, (0, call.line)) if steps else (0, call.line)
            if not first <= call.line <= last:
                calls[at] = msgspec.structs.replace(call, callee=Ref("opaque", steps))

    def _without_other_language(self, found: list[int]) -> list[int]:
        """Of what C and C++ each have for themselves, that of the language of this file."""
        own = [index for index in found if index not in self._other_language]
        if own and len(own) < len(found):
            for index in self._other_language.intersection(found):
                hide(self._facts.declarations[index])
            return own
        return found

    def _alternatives(self, found: list[int]) -> list[int]:
        if not self._plus_plus or not self._macros.keys().isdisjoint(found):
            return found
        by_shape: dict[str, list[int]] = {}
        for index in found:
            by_shape.setdefault(_shape(self._facts.declarations[index]), []).append(index)
        return [index for same in by_shape.values() if len(same) > 1 for index in same]

    def _around(self, declared: Declaration) -> Declaration | None:
        return None if declared.parent == FILE else self._facts.declarations[declared.parent]


def _condition_of(node: Node) -> Node | None:
    return node.child_by_field_name("condition") or node.child_by_field_name("name")


def _is_guard(node: Node) -> bool:
    """Whether this is a header guard: ``#ifndef NAME``, ``#define NAME``."""
    condition = _condition_of(node)
    if node.child_by_field_name("alternative") is not None or condition is None:
        return False
    first = next(
        (one for one in node.named_children if one != condition and one.type != "comment"), None
    )
    if first is None or first.type != "preproc_def" or first.child_by_field_name("value"):
        return False
    return name_of(first.child_by_field_name("name")) in _WORD.findall(text(condition))


def _shape(declared: Declaration) -> str:
    """The types of a function's parameters, which distinguish overloads."""
    _, _, parameters = declared.signature.partition("(")
    return "".join(_PARAMETER_NAME.sub("", parameters).split())


ANGLED: Final = "angled"
QUOTED: Final = "quoted"
USED_NAMESPACES: Final = "using namespace"
"""The property of a file that has, one a line, the namespaces whose names it can do without."""

_CLASSES: Final = ("class_specifier", "enum_specifier", "struct_specifier", "union_specifier")
_HOLDS_NOTHING: Final = words(
    """
    access_specifier attribute_declaration attribute_specifier char_literal comment
    concatenated_string decltype field_identifier identifier namespace_identifier number_literal
    operator_name preproc_arg preproc_call primitive_type qualified_identifier raw_string_literal
    sizeof_expression static_assert_declaration storage_class_specifier string_literal
    system_lib_string template_argument_list template_parameter_list template_type type_descriptor
    type_identifier type_qualifier
    """
)
_NAMESPACES_MAX: Final = 32
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_NOTHING: Final[Sequence[Node]] = ()


class CFileWalk:
    """The walk of one file. ``plus_plus`` selects C++ where the same syntax means other things."""

    def __init__(self, builder: Builder, *, plus_plus: bool) -> None:
        self._builder = builder
        self._plus_plus = plus_plus
        self._smart_pointers: set[str] = set()
        self._template_parameters: tuple[str, ...] = ()
        self._conditions = CConditions(builder.facts, plus_plus=plus_plus)
        handlers: dict[str, Handler] = {
            "alias_declaration": self._alias,
            "call_expression": self._call,
            "compound_literal_expression": self._literal_of_class,
            "declaration": self._declaration,
            "field_declaration": self._declaration,
            "field_initializer": self._field_initializer,
            "for_range_loop": self._for_range_loop,
            "friend_declaration": self._friend,
            "function_definition": self._function,
            "namespace_alias_definition": self._namespace_alias,
            "namespace_definition": self._namespace,
            "new_expression": self._new,
            "optional_parameter_declaration": self._parameter,
            "parameter_declaration": self._parameter,
            "preproc_def": self._macro_name,
            "preproc_elif": self._conditional,
            "preproc_function_def": self._macro,
            "preproc_if": self._conditional,
            "preproc_ifdef": self._conditional,
            "preproc_include": self._include,
            "template_declaration": self._template,
            "type_definition": self._typedef,
            "using_declaration": self._using,
        }
        handlers |= dict.fromkeys(_CLASSES, self._class)
        handlers |= dict.fromkeys(_HOLDS_NOTHING, _nothing)
        self._walk = Extraction(builder, handlers)

    def run(self, root: Node) -> None:
        self._walk.walk(root.named_children)
        self._conditions.settle()

    # The preprocessor

    def _include(self, node: Node) -> Sequence[Node]:
        path = node.child_by_field_name("path")
        if path is not None and path.type in ("string_literal", "system_lib_string"):
            kind = ANGLED if path.type == "system_lib_string" else QUOTED
            self._builder.imports(node, name_of(path).strip('<>"'), kind=kind, exported=True)
        return _NOTHING

    def _macro(self, node: Node) -> Sequence[Node]:
        """A macro with parameters is called as a function is."""
        name = name_of(node.child_by_field_name("name"))
        parameters = without_literals(text(node.child_by_field_name("parameters")))
        index = self._builder.declare(
            "function", name, node, signature=f"#define {name}{parameters}"
        )
        self._conditions.macro(index, node)
        return _NOTHING

    def _macro_name(self, node: Node) -> Sequence[Node]:
        """``#define allocate my_malloc`` gives another name to something."""
        value = text(node.child_by_field_name("value")).strip()
        if self._builder.here == FILE and _NAME.fullmatch(value):
            name = name_of(node.child_by_field_name("name"))
            if not self._conditions.renamed(name, node):
                self._walk.local(name, named(value))
        return _NOTHING

    def _conditional(self, node: Node) -> Sequence[Node]:
        self._conditions.enter(node)
        condition = node.child_by_field_name("condition")
        return [child for child in node.named_children if child != condition]

    # Namespaces

    def _namespace(self, node: Node) -> Sequence[Node]:
        body = node.child_by_field_name("body")
        inside = [] if body is None else body.named_children
        name = node.child_by_field_name("name")
        if name is None or text(name) == "std":
            return inside  # what is added to the standard library does not hide the rest of it
        outer, *inner = qualified_names(name)[:_NAMESPACES_MAX]
        self._open_namespace(outer, inner, node, inside)
        return _NOTHING

    def _open_namespace(
        self, name: str, inner: Sequence[str], node: Node, inside: Sequence[Node]
    ) -> None:
        index = self._builder.declare("namespace", name, node, partial=True)
        if inner:
            with self._builder.inside(index):
                self._open_namespace(inner[0], inner[1:], node, inside)
        else:
            self._walk.inside(index, inside)

    def _namespace_alias(self, node: Node) -> Sequence[Node]:
        children = node.named_children
        if len(children) == 2:
            self._walk.local(name_of(children[0]), named(*qualified_names(children[1])))
        return _NOTHING

    def _using(self, node: Node) -> Sequence[Node]:
        children = node.named_children
        if not children:
            return _NOTHING
        names = qualified_names(children[-1])
        if any(child.type == "namespace" for child in node.children):
            properties = self._builder.facts.properties
            used = dict.fromkeys(properties.get(USED_NAMESPACES, "").split("\n"))
            if len(used) < _NAMESPACES_MAX:
                used[".".join(names)] = None
                properties[USED_NAMESPACES] = "\n".join(filter(None, used))
        elif len(names) > 1 and self._builder.innermost("class") is None:
            self._walk.local(names[-1], named(*names))
        return _NOTHING

    # Classes and types

    def _class(self, node: Node) -> Sequence[Node]:
        body = node.child_by_field_name("body")
        if body is None:
            return _NOTHING
        name = node.child_by_field_name("name")
        if name is None:
            return body.named_children
        self._declare_class(qualified_names(name)[-1], node, body)
        return _NOTHING

    def _declare_class(self, name: str, node: Node, body: Node) -> None:
        bases: list[Ref] = []
        for child in node.named_children:
            if child.type == "base_class_clause":
                bases += filter(None, (type_of(base) for base in child.named_children))
        index = self._builder.declare("class", name, node, bases=bases)
        self._conditions.declared(index, node)
        self._walk.inside(index, body.named_children, self._bounds())

    def _typedef(self, node: Node) -> Sequence[Node]:
        """``typedef struct {...} name`` names the struct; any other gives a type another name."""
        written = node.child_by_field_name("type")
        own = _class_of(written)
        tag = "" if own is None else name_of(own.child_by_field_name("name"))
        body = None if own is None else own.child_by_field_name("body")
        if own is not None and body is not None and tag:
            self._declare_class(tag, own, body)
        for child in node.children_by_field_name("declarator"):
            declared = declarator_of(child)
            if declared is None or not declared.name or declared.name == tag:
                continue
            if own is not None and body is not None and not tag and not declared.is_indirect:
                tag = declared.name
                self._declare_class(tag, own, body)
            else:
                self._declare_type(declared.name, node, named(tag) if tag else type_of(written))
        return _NOTHING

    def _alias(self, node: Node) -> Sequence[Node]:
        written = node.child_by_field_name("type")
        self._declare_type(name_of(node.child_by_field_name("name")), node, type_of(written))
        return _NOTHING

    def _declare_type(self, name: str, node: Node, meant: Ref | None) -> None:
        stands_for = None if meant is None else Ref(meant.base, meant.steps, True)
        index = self._builder.declare("type", name, node, returns=stands_for)
        self._conditions.declared(index, node)

    def _friend(self, node: Node) -> Sequence[Node]:
        return [child for child in node.named_children if child.type == "function_definition"]

    def _template(self, node: Node) -> Sequence[Node]:
        """The parameters of a template hide what else has their names."""
        parameters = node.child_by_field_name("parameters")
        names: list[str] = []
        for parameter in [] if parameters is None else parameters.named_children:
            found = (child for child in parameter.named_children if child.type == "type_identifier")
            names += [name_of(child) for child in found][:1]
        self._template_parameters = tuple(names)
        return [child for child in node.named_children if child != parameters]

    def _bounds(self) -> dict[str, Ref]:
        """The parameters of the template that has just begun: types of which nothing is known."""
        bounds = dict.fromkeys(self._template_parameters, UNKNOWN)
        self._template_parameters = ()
        return bounds

    def _type_of(self, written: Node | None) -> Ref | None:
        ref = type_of(written)
        bound = None if ref is None else self._walk.bound(ref.steps[0].name)
        return ref if bound is None else bound

    # Functions

    def _function(self, node: Node) -> Sequence[Node]:
        declared = declarator_of(node.child_by_field_name("declarator"))
        if declared is None or declared.function is None or not declared.name:
            return node.named_children
        written = node.child_by_field_name("type")
        index = self._declare_function(node, declared, written)
        self._conditions.declared(index, node)
        inside = [child for child in node.named_children if child != written]
        self._walk.inside(index, inside, self._bounds())
        return [] if written is None else [written]

    def _declare_function(
        self, node: Node, declared: Declarator, written: Node | None, *, forward: bool = False
    ) -> int:
        index = self._builder.declare(
            "function",
            declared.name,
            node,
            signature=signature_of(result_text(node, written), declared),
            receiver=named(*declared.scope) if declared.scope else None,
            returns=result_type(node, declared, written),
            static=_is_static(node),
            forward=forward,
            parameters=parameters_of(declared.function) if self._plus_plus else None,
        )
        declared_here = self._builder.facts.declarations[index]
        if declared.scope and declared_here.parent != FILE:
            around = self._builder.facts.declarations[declared_here.parent].qualified
            declared_here.qualified = ".".join([around, *declared.scope, declared.name])
        return index

    def _parameter(self, node: Node) -> Sequence[Node]:
        written = node.child_by_field_name("type")
        declared = declarator_of(node.child_by_field_name("declarator"))
        if declared is not None:
            self._variable(declared, written, None)
        return _NOTHING

    # Variables and fields

    def _declaration(self, node: Node) -> Sequence[Node]:
        written = node.child_by_field_name("type")
        inside: list[Node] = [] if written is None else [written]
        for child in node.children_by_field_name("declarator"):
            value = child.child_by_field_name("value") if child.type == "init_declarator" else None
            declared = declarator_of(child)
            if declared is None:
                inside.append(child)
            elif declared.function is not None and self._is_prototype(declared):
                self._declare_function(node, declared, written, forward=True)
                self._template_parameters = ()
            else:
                inside += self._declared_variable(node, declared, written, value)
        inside += node.children_by_field_name("default_value")
        return inside

    def _is_prototype(self, declared: Declarator) -> bool:
        """In a function of C++, ``Parser parser(text);`` looks like a prototype, and is none."""
        return self._builder.innermost("function") is None and not declared.scope

    def _declared_variable(
        self, node: Node, declared: Declarator, written: Node | None, value: Node | None
    ) -> Sequence[Node]:
        if value is not None and value.type == "lambda_expression":
            signature = lambda_signature(declared.name, value)
            index = self._builder.declare("function", declared.name, node, signature=signature)
            self._walk.inside(index, value.named_children)
            return _NOTHING
        self._variable(declared, written, value)
        looks_constructed = declared.function is not None or (
            value is not None and value.type in ("argument_list", "initializer_list")
        )
        if self._plus_plus and looks_constructed and not declared.is_indirect:
            callee = None if is_smart_pointer(written) else constructed(written)
            if callee is not None and self._builder.innermost("function") is not None:
                written_so = declared.function
                given = (
                    value if written_so is None else written_so.child_by_field_name("parameters")
                )
                self._builder.call(node, self._here(callee), arguments_in(given))
        return [] if value is None else [value]

    def _variable(self, declared: Declarator, written: Node | None, value: Node | None) -> None:
        holds = UNKNOWN if declared.callable else self._type_of(written)
        elements = element_type_of(written)
        if declared.is_repeated and not declared.callable:
            elements = elements or holds
        if holds is None and written is not None and written.type == "placeholder_type_specifier":
            holds = self._here(reference_of(value)[0])
        if is_smart_pointer(written):
            self._smart_pointers.add(declared.name)
        if holds is None or declared.scope:
            return
        place = self._builder.here_declared
        if place is not None and place.kind == "class":
            self._builder.field(declared.name, holds)
            if elements is not None:
                self._builder.field(declared.name + ELEMENT, elements)
        else:
            self._walk.local(declared.name, holds)
            if elements is not None:
                self._walk.local(declared.name + ELEMENT, elements)

    def _for_range_loop(self, node: Node) -> Sequence[Node]:
        written = node.child_by_field_name("type")
        declared = declarator_of(node.child_by_field_name("declarator"))
        if declared is not None:
            iterated = self._here(reference_of(node.child_by_field_name("right"))[0])
            self._walk.local(declared.name, self._type_of(written) or element(iterated))
        return [child for child in node.named_children if child != written]

    # Calls

    def _call(self, node: Node) -> Sequence[Node]:
        function = node.child_by_field_name("function")
        if function is None:
            return node.named_children
        if not is_cast(function) and function.type != "primitive_type":
            made = made_by(function)
            callee, last = (made, function) if made is not None else reference_of(node)
            if self._is_of_pointer(function):
                callee = Ref("opaque", callee.steps[-1:])
            if callee.steps:
                given = arguments_in(node.child_by_field_name("arguments"))
                self._builder.call(last or node, self._here(callee), given)
        return node.named_children

    def _is_of_pointer(self, function: Node) -> bool:
        """Whether a method is the smart pointer's own, as ``reset`` in ``owner.reset()``."""
        if function.type != "field_expression":
            return False
        holder = function.child_by_field_name("argument")
        operator = function.child_by_field_name("operator")
        return (
            holder is not None
            and operator is not None
            and operator.type == "."
            and name_of(holder) in self._smart_pointers
        )

    def _new(self, node: Node) -> Sequence[Node]:
        callee = constructed(node.child_by_field_name("type"))
        if callee is not None:
            given = arguments_in(node.child_by_field_name("arguments"))
            self._builder.call(node, self._here(callee), given)
        return node.named_children

    def _literal_of_class(self, node: Node) -> Sequence[Node]:
        callee = constructed(node.child_by_field_name("type")) if self._plus_plus else None
        if callee is not None:
            given = arguments_in(node.child_by_field_name("value"))
            self._builder.call(node, self._here(callee), given)
        return node.named_children

    def _field_initializer(self, node: Node) -> Sequence[Node]:
        """``: Base(text)`` constructs a base, or another way the class itself."""
        children = node.named_children
        if children:
            names = tuple(qualified_names(children[0]))
            around = self._builder.innermost("function")
            own = () if around is None else (around.name,)
            owner = self._builder.innermost("class")
            bases = [] if owner is None else [_names(base) for base in owner.bases]
            if names in bases or names == own or len(names) > 1:
                self._builder.call(node, named(*names, called=True), arguments_in(children[-1]))
        return children

    def _here(self, written: Ref) -> Ref:
        """A reference by the names that variables have in the facts of the function around."""
        if written.base != "name" or not written.steps:
            return written
        first, *others = written.steps
        local = self._walk.local_name(first.name)
        if local == first.name:
            return written
        return Ref("name", (Step(local, first.called), *others), written.is_type)


def _nothing(_: Node) -> Sequence[Node]:
    return _NOTHING


def _class_of(written: Node | None) -> Node | None:
    return written if written is not None and written.type in _CLASSES else None


def _is_static(node: Node) -> bool:
    return any(
        child.type == "storage_class_specifier" and text(child) == "static"
        for child in node.named_children
    )


def _names(ref: Ref) -> tuple[str, ...]:
    return tuple(step.name for step in ref.steps)


# Parses C and C++ without a preprocessor, working around the macros that confuse the parser.

_CPLUSPLUS_WORDS: Final = re.compile(
    rb"^[ \t]*(?:namespace\b[^;=(\n]*$|namespace\b[^;=(\n]*\{|template[ \t]*<|class[ \t]+\w+"
    rb"|(?:public|private|protected)[ \t]*:|using[ \t]+\w|inline[ \t]+namespace\b)",
    re.MULTILINE,
)
"""Beginnings of lines that occur in C++, but not in C."""

_COMMENT: Final = re.compile(rb"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)

_MACRO_IN_CLASS: Final = re.compile(
    rb"\b(?:class|struct)[ \t]+([A-Z_][A-Z0-9_]*(?:\([^()\n]{0,200}\))?)"
    rb"(?=[ \t]+[A-Za-z_]\w*[^;()=\n]{0,200}$)",
    re.MULTILINE,
)
"""The macro in ``class API Parser : public Base {``, after which the name would not be seen."""


def extract_c(path: str, source: bytes) -> FileFacts:
    """The facts of a file of C. A header may turn out to be C++."""
    is_header = path.lower().endswith(".h")
    if is_header and _is_plus_plus(source):
        return extract_cpp(path, source)
    root = _c().parse(source).root_node
    if is_header and root.has_error:
        as_cpp = _cpp().parse(source).root_node
        if not as_cpp.has_error:
            return _facts(Builder(path, "cpp"), as_cpp, plus_plus=True)
    return _facts(Builder(path, "c"), root, plus_plus=False)


def extract_cpp(path: str, source: bytes) -> FileFacts:
    """The facts of a file of C++."""
    root = _cpp().parse(_MACRO_IN_CLASS.sub(_blanked, source)).root_node
    return _facts(Builder(path, "cpp"), root, plus_plus=True)


def _facts(builder: Builder, root: Node, *, plus_plus: bool) -> FileFacts:
    CFileWalk(builder, plus_plus=plus_plus).run(root)
    builder.facts.lines = lines_in(root)
    builder.facts.broken = root.has_error
    return builder.facts


def _is_plus_plus(source: bytes) -> bool:
    return bool(_CPLUSPLUS_WORDS.search(source)) and bool(
        _CPLUSPLUS_WORDS.search(_COMMENT.sub(b"", source))
    )


def _blanked(found: re.Match[bytes]) -> bytes:
    whole, macro = found.group(0), found.group(1)
    return whole[: -len(macro)] + b" " * len(macro)


@cache
def _c() -> Parser:
    return Parser(Grammar(tree_sitter_c.language()))


@cache
def _cpp() -> Parser:
    return Parser(Grammar(tree_sitter_cpp.language()))
