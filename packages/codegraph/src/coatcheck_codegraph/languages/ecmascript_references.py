"""What expressions refer to, as far as names tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.facts import Binding, Ref, Step
from coatcheck_codegraph.languages.ecmascript_chains import Chain, Link, chain_of, specifier_of
from coatcheck_codegraph.languages.ecmascript_types import type_ref
from coatcheck_codegraph.languages.ecmascript_walk import EMPTY, Walk

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

    def _from_beginning(self, chain: Chain, links: list[Link]) -> Ref | None:
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


def _steps(links: Iterable[Link]) -> tuple[Step, ...]:
    """The names of a chain. A prototype's members are those of its class."""
    return tuple([Step(link.name, link.called) for link in links if link.name != "prototype"])
