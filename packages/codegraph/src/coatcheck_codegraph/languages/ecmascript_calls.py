"""Calls: of functions and methods, of classes by ``new``, of components in JSX."""

from __future__ import annotations

from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.facts import Binding, Ref, Step
from coatcheck_codegraph.languages.ecmascript_chains import Chain, Link, chain_of, specifier_of
from coatcheck_codegraph.languages.ecmascript_functions import Functions
from coatcheck_codegraph.languages.ecmascript_prototypes import Prototypes
from coatcheck_codegraph.languages.ecmascript_references import References
from coatcheck_codegraph.languages.ecmascript_walk import SAME, Walk

_UNNAMED: Final = Ref("opaque", (Step("", True),))
_OF_FUNCTIONS: Final = frozenset({"apply", "bind", "call"})


class Calls:
    """Notes the calls of expressions."""

    def __init__(
        self, walk: Walk, references: References, functions: Functions, prototypes: Prototypes
    ) -> None:
        self._walk = walk
        self._references = references
        self._functions = functions
        self._prototypes = prototypes

    def chain(self, node: Node) -> None:
        """Note every call of a chain, and go on with what the chain holds."""
        chain = chain_of(node)
        links = chain.links
        if chain.root == "module":
            self._references.module(chain.start)
        if links and links[-1].name == "__exportStar":
            self._export_everything(links[-1])
            return
        self._prototypes.note_inheritance(chain)
        self._note(chain)
        if chain.root == "function" and links and links[0].name == "bind" and _is_this(links[0]):
            # function () {}.bind(this) has the `this` of what is around, as an arrow function has.
            self._walk.walk(inside for inside in chain.insides if inside is not chain.start)
            self._functions.anonymous(chain.start, this=SAME)
        else:
            self._walk.walk(reversed(chain.insides))

    def _note(self, chain: Chain) -> None:
        if chain.called is not None and chain.root != "function":
            callee = self._references.of(chain, -1) if chain.root == "module" else _UNNAMED
            self._walk.call(chain.called.node, callee)
        for at, link in enumerate(chain.links):
            if link.called:
                self._note_link(chain, at, link)

    def _note_link(self, chain: Chain, at: int, link: Link) -> None:
        if link.name in _OF_FUNCTIONS:
            if at == 0 and chain.root == "function":
                return  # the function is called where it is written, and has no name
            if at > 0 and not chain.links[at - 1].called and _is_bound(link):
                self._note_function_called(chain, at, link)
                return
        self._walk.call(link.node, self._references.of(chain, at))

    def _note_function_called(self, chain: Chain, at: int, link: Link) -> None:
        """``f.call(this)`` calls ``f``, not a method of that name; ``f.bind(this)`` calls nothing
        of the archive."""
        if link.name == "bind":
            callee = Ref("name", (Step("Function"), Step("bind", True)))
            self._walk.call(link.node, callee)
            return
        function = self._references.of(chain, at - 1)
        *before, last = function.steps
        callee = Ref(function.base, (*before, Step(last.name, True)))
        self._walk.call(chain.links[at - 1].node, callee)

    def _export_everything(self, link: Link) -> None:
        """``__exportStar(require("x"), exports)``: what compilers make of ``export * from "x"``."""
        for given in [] if link.arguments is None else link.arguments.named_children[:1]:
            specifier = specifier_of(given) if given.type == "call_expression" else None
            if specifier is not None:
                everything = (Binding("*", "*"),)
                self._walk.builder.imports(
                    given, specifier, everything, kind="export", exported=True
                )

    def component(self, node: Node) -> None:
        """``<Panel title={f()} />`` calls Panel; ``<div>`` is no component."""
        name = node.child_by_field_name("name")
        if name is not None:
            chain = chain_of(name)
            if chain.root == "name" and (len(chain.links) > 1 or chain.links[0].name[:1].isupper()):
                chain.links[-1].called = True
                self._walk.call(chain.links[-1].node, self._references.of(chain))
        self._walk.walk(child for child in node.named_children if child != name)


def _is_this(link: Link) -> bool:
    return _first_argument(link) == "this"


def _is_bound(link: Link) -> bool:
    return _first_argument(link) in ("this", "null", "undefined")


def _first_argument(link: Link) -> str:
    given = [] if link.arguments is None else link.arguments.named_children
    return given[0].type if given else ""
