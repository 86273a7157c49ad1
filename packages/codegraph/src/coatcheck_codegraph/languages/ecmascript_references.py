"""The references in JavaScript expressions, by names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, text
from coatcheck_codegraph.facts import Binding, Ref, Step
from coatcheck_codegraph.languages.ecmascript_types import type_ref
from coatcheck_codegraph.languages.ecmascript_walk import EMPTY, Walk

# ``a.b(c).d()``: an expression as a chain of names, taken apart once, however long it is.

Root = Literal["name", "this", "super", "module", "typed", "function", "other"]
"""What a chain begins with: a name, ``require("x")`` or ``import("x")``, an expression that is said
to be of a type (``x as Foo``), a function without a name, or anything else."""

_UNWRAPPED: Final = frozenset(
    {"parenthesized_expression", "non_null_expression", "await_expression", "satisfies_expression"}
)
_FUNCTIONS: Final = frozenset({"arrow_function", "function_expression", "generator_function"})
_INTEROP: Final = frozenset(
    {
        "__importDefault",
        "__importStar",
        "__toESM",
        "_interopRequireDefault",
        "_interopRequireWildcard",
    }
)
"""What compilers put around a ``require``: it is the module all the same."""

_NO_TYPES: Final = frozenset({"predefined_type", "const"})
_WORD_CHARACTERS_MAX: Final = 200
_NAME_LIKE: Final = re.compile(r"[\w$][\w$-]{0,99}")


@dataclass(slots=True)
class ChainLink:
    """A name of a chain, where it is written, and the arguments if it is called."""

    name: str
    node: Node
    called: bool = False
    arguments: Node | None = None


@dataclass(slots=True)
class Chain:
    """``start`` is the node of its beginning; ``called`` says that the beginning itself is called,
    and has no name (an immediately called function, the value of a subscript)."""

    root: Root
    start: Node
    links: list[ChainLink]
    called: ChainLink | None = None
    insides: list[Node] = field(default_factory=list)
    """The other expressions that it holds: arguments, and a beginning that is no name."""


def chain_of(node: Node) -> Chain:
    """Take an expression apart. The chain's links are in the order they are written in."""
    links: list[ChainLink] = []
    insides: list[Node] = []
    call: ChainLink | None = None
    while True:
        kind = node.type
        if kind == "member_expression":
            named = node.child_by_field_name("property")
            below = node.child_by_field_name("object")
            if named is None or below is None:
                break
            links.append(_link(_word(named), named, call))
            node, call = below, None
        elif kind == "identifier":
            links.append(_link(_word(node), node, call))
            return Chain("name", node, links[::-1], None, insides)
        elif kind == "call_expression":
            function = node.child_by_field_name("function")
            if specifier_of(node) is not None:
                return Chain("module", node, links[::-1], call, insides)
            if function is None or call is not None:
                break
            arguments = node.child_by_field_name("arguments")
            if arguments is not None:
                insides.append(arguments)
            node, call = function, ChainLink("", node, True, arguments)
        elif kind == "new_expression":
            constructor = node.child_by_field_name("constructor")
            if constructor is None or call is not None:
                break
            arguments = node.child_by_field_name("arguments")
            if arguments is not None:
                insides.append(arguments)
            node, call = constructor, ChainLink("", node, True, arguments)
        elif kind in _UNWRAPPED:
            below = _first(node)
            if below is None:
                break
            node = below
        elif kind == "sequence_expression":
            *before, last = node.named_children
            insides.extend(child for child in before if child.type != "number")
            node = last
        elif kind == "as_expression" or kind == "type_assertion":
            value, type_node = _asserted(node)
            if value is None:
                break
            if type_node is None or type_node.type in _NO_TYPES:
                node = value
            else:
                insides.append(value)
                return Chain("typed", type_node, links[::-1], call, insides)
        elif kind == "this":
            return Chain("this", node, links[::-1], call, insides)
        elif kind == "super":
            if call is not None:
                links.append(_link("constructor", node, call))
            return Chain("super", node, links[::-1], None, insides)
        elif kind in _FUNCTIONS:
            insides.append(node)
            return Chain("function", node, links[::-1], call, insides)
        else:
            break
    insides.append(node)
    return Chain("other", node, links[::-1], call, insides)


def _word(node: Node) -> str:
    """The text of an identifier, which needs no trimming. There are many of them."""
    return (node.text or b"").decode("utf-8", "replace")[:_WORD_CHARACTERS_MAX]


def _link(name: str, node: Node, call: ChainLink | None) -> ChainLink:
    return ChainLink(name, node, call is not None, None if call is None else call.arguments)


def _first(node: Node) -> Node | None:
    for child in node.named_children:
        if child.type != "comment":
            return child
    return None


def _asserted(node: Node) -> tuple[Node | None, Node | None]:
    """The value and the type of ``x as Foo`` or ``<Foo>x``."""
    parts = [child for child in node.named_children if child.type != "comment"]
    if node.type == "as_expression":
        return (parts[0], parts[1] if len(parts) > 1 else None) if parts else (None, None)
    if len(parts) < 2:
        return None, None
    return parts[-1], _first(parts[0])


def specifier_of(call: Node) -> str | None:
    """The module of ``require("x")`` or ``import("x")``, whatever a compiler wrapped it in."""
    function = call.child_by_field_name("function")
    if function is None:
        return None
    if function.type == "identifier":
        name = text(function)
        if name in _INTEROP:
            wrapped = argument(call, 0)
            if wrapped is None or wrapped.type != "call_expression":
                return None
            inner = wrapped.child_by_field_name("function")
            return specifier_of(wrapped) if inner is not None and text(inner) == "require" else None
        if name != "require":
            return None
    elif function.type != "import":
        return None
    return string_of(argument(call, 0))


def argument(call: Node, at: int) -> Node | None:
    """An argument of a call."""
    arguments = call.child_by_field_name("arguments")
    if arguments is None or arguments.type != "arguments":
        return None
    given = [child for child in arguments.named_children if child.type != "comment"]
    return given[at] if at < len(given) else None


def string_of(node: Node | None) -> str | None:
    """What the string that names a module says."""
    if node is None or node.type not in ("string", "template_string"):
        return None
    fragments = node.named_children
    if len(fragments) != 1 or fragments[0].type != "string_fragment":
        return None
    return name_of(fragments[0])


def name_said(node: Node) -> str | None:
    """What a string says, if that is like a name: other text may be anything."""
    said = string_of(node) or ""
    return said if _NAME_LIKE.fullmatch(said) else None


def key_of(node: Node | None) -> str | None:
    """The name of a member as written in a class or an object, if it is one."""
    if node is None:
        return None
    if node.type == "string":
        return name_said(node)
    if node.type == "computed_property_name":
        inner = _first(node)
        if inner is not None and inner.type in ("member_expression", "identifier"):
            chain = chain_of(inner)
            if chain.root == "name" and not any(link.called for link in chain.links):
                return f"[{'.'.join(link.name for link in chain.links)}]"
        return None
    if node.type == "number":
        return None
    return name_of(node)


EXPORTS: Final = Ref("name", (Step("exports"),))
"""What a CommonJS module exports: the file itself, to the rules."""

UNKNOWN: Final = Ref("opaque", ())
"""The value of what gets one after another."""

_STEPS_MAX: Final = 24
"""Of a reference; what is chained on to more than that is not looked at."""

_NOT_LITERALS: Final = frozenset({"identifier", "this"})
_WITHOUT_NAME: Final = frozenset(
    {"arrow_function", "function_expression", "generator_function", "object", "array"}
)
_LITERALS: Final = {
    "string": "String",
    "template_string": "String",
    "regex": "RegExp",
    "array": "Array",
    "number": "Number",
}
"""Whose methods a literal has."""


class References:
    """Makes references of expressions, by what their names mean where the walk is."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._modules: dict[int, str] = {}

    def named(self, name: str) -> Ref:
        """A reference to what a name means here."""
        meaning = self._walk.scopes.meaning(name)
        return Ref("name", (Step(meaning if isinstance(meaning, str) else name),))

    def of(self, chain: Chain, upto: int | None = None) -> Ref:
        """A chain up to one of its links, or all of it."""
        last = len(chain.links) - 1 if upto is None else upto
        if last < _STEPS_MAX:
            ref = self._from_beginning(chain, chain.links[: last + 1])
            if ref is not None:
                return ref
        link = chain.links[last] if last >= 0 else None
        return Ref("opaque", () if link is None else (Step(link.name, link.called),))

    def _from_beginning(self, chain: Chain, links: list[ChainLink]) -> Ref | None:
        match chain.root:
            case "name":
                meaning = self._walk.scopes.meaning(links[0].name)
                if meaning == "module" and len(links) > 1 and links[1].name == "exports":
                    links, meaning = links[1:], "exports"
                if isinstance(meaning, str):
                    return Ref("name", (Step(meaning, links[0].called), *_steps(links[1:])))
            case "module":
                first = Step(self.module(chain.start), chain.called is not None)
                return Ref("name", (first, *_steps(links)))
            case "this" if chain.called is None and self._walk.this is not None:
                this = self._walk.this
                return Ref(this.base, (*this.steps, *_steps(links)))
            case "super" if self._walk.this is not None:
                return Ref("super", _steps(links))
            case "typed" if chain.called is None:
                stated = type_ref(chain.start, self._walk.scopes)
                if stated is not None:
                    return Ref("name", (Step(self.kept("as", stated)), *_steps(links)))
            case "other" if chain.called is None and len(links) == 1:
                builtin = _LITERALS.get(chain.start.type)
                if builtin is not None:
                    return Ref("name", (Step(builtin), *_steps(links)))
        return None

    def kept(self, name: str, what: Ref) -> str:
        """A variable that the code does not have, for what an expression is said to be."""
        key = self._walk.scopes.invent(name)
        self._walk.builder.variable(key, what)
        return key

    def value(self, node: Node | None) -> Ref | None:
        """What the value of an expression is; None where names do not tell."""
        if node is None or (node.type in EMPTY and node.type not in _NOT_LITERALS):
            return None
        if node.type in _WITHOUT_NAME:
            return None
        chain = chain_of(node)
        if chain.root in ("function", "other") or (chain.called and chain.root != "module"):
            return None
        if len(chain.links) > 1 and chain.links[-1].called and chain.links[-1].name == "bind":
            chain.links.pop()  # f.bind(x) is f
        ref = self.of(chain)
        return None if ref.base == "opaque" else ref

    def portable(self, ref: Ref) -> Ref | None:
        """A reference that means the same outside of the function around, if there is one."""
        if ref.base != "name":
            return ref
        first = ref.steps[0]
        function = self._walk.builder.innermost("function")
        local = None if function is None else function.locals.get(first.name)
        if local is not None:
            return local if len(ref.steps) == 1 and not first.called else None
        return None if "@" in first.name else ref

    def keeps_type(self, held: Ref) -> bool:
        """Whether what holds this may only get values of the same type: that which is stated, or in
        TypeScript, that of the first value, if this is no function."""
        is_typed = self._walk.facts.language != "javascript"
        return held.is_type or (is_typed and bool(held.steps) and held.steps[-1].called)

    # Modules that are named in the midst of code

    def module(self, call: Node) -> str:
        """The variable that stands for the module of a ``require`` or an ``import()``."""
        key = self._modules.get(call.start_byte)
        if key is None:
            key = self._walk.scopes.invent("module")
            self.require(call, specifier_of(call) or "", key, (Binding(key),))
        return key

    def require(self, call: Node, specifier: str, key: str, bindings: Iterable[Binding]) -> None:
        """Note the import that a ``require`` is, and the variable that stands for its module."""
        self._modules[call.start_byte] = key
        self._walk.builder.imports(call, specifier, bindings, kind="require")


def _steps(links: Iterable[ChainLink]) -> tuple[Step, ...]:
    """The names of a chain. A prototype's members are those of its class."""
    return tuple([Step(link.name, link.called) for link in links if link.name != "prototype"])
