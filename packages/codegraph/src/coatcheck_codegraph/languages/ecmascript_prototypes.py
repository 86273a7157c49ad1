"""Classes that are made without the word: functions with a prototype, objects given functions."""

from __future__ import annotations

import re
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import text
from coatcheck_codegraph.facts import Declaration, Ref, Step
from coatcheck_codegraph.languages.ecmascript_chains import Chain, argument
from coatcheck_codegraph.languages.ecmascript_references import UNKNOWN, References
from coatcheck_codegraph.languages.ecmascript_walk import Walk

_WITH_PROTOTYPE: Final = re.compile(rb"\b([A-Za-z_$][\w$]{0,99})\.prototype\b")
_GIVEN_FUNCTIONS: Final = re.compile(
    rb"\b([A-Za-z_$][\w$]{0,99})\.[\w$]{1,100}\s{0,20}=\s{0,20}"
    rb"(?:[\w$]{1,100}\.[\w$]{1,100}\s{0,20}=\s{0,20}){0,4}"
    rb"(?:async\b\s{0,20})?(?:function\b|\([^()]{0,200}\)\s{0,20}=>|[\w$]{1,100}\s{0,20}=>)"
)
_INHERITING: Final = frozenset(
    {"inherits", "__extends", "_inherits", "setPrototypeOf", "setprototypeof"}
)


class Prototypes:
    """Which names of a file are such classes, and what they extend and hold.

    The source is searched for ``X.prototype`` and ``x.f = function`` before the walk: what a
    function or an object is has to be known where it is declared, and is often said after that.
    """

    def __init__(self, walk: Walk, references: References, source: bytes) -> None:
        self._walk = walk
        self._references = references
        self._by_name: dict[str, Declaration] = {}
        self._known = 0
        self.with_prototype = {found.decode() for found in _WITH_PROTOTYPE.findall(source)}
        self.given_functions = {found.decode() for found in _GIVEN_FUNCTIONS.findall(source)}

    def extend(self, child: Ref, base: Ref) -> None:
        """What is named ``child`` inherits from ``base``."""
        declared = self._declared(child)
        if declared is not None and base != child and base not in declared.bases:
            declared.bases = (*declared.bases, base)

    def note_inheritance(self, chain: Chain) -> None:
        """``util.inherits(A, B)`` and its like."""
        link = chain.links[-1] if chain.links else None
        if link is None or link.name not in _INHERITING or link.arguments is None:
            return
        given = link.arguments.named_children
        if len(given) == 2:
            child, base = map(self._references.value, given)
            if child is not None and base is not None:
                self.extend(child, base)

    def made_object(self, value: Node) -> tuple[Ref, ...] | None:
        """``Object.create(X.prototype)``: an object, and what it extends."""
        if value.type != "call_expression":
            return None
        if text(value.child_by_field_name("function")) != "Object.create":
            return None
        base = self._references.value(argument(value, 0))
        return () if base is None else (base,)

    # What they hold

    def keep_member(self, owner: Ref, name: str, what: Ref) -> None:
        """``X.name = what``."""
        declared = self._declared(owner)
        if declared is not None and what.base == "name" and "@" not in what.steps[0].name:
            self._keep(declared.fields, name, what)

    def keep_field(self, name: str, what: Ref) -> None:
        """``this.name = what``."""
        held = self._references.portable(what)
        if held is None or held == Ref("self", (Step(name),)):
            return
        function = self._walk.builder.innermost("function")
        owner = None
        if function is not None and function.receiver is not None:
            owner = self._declared(function.receiver)
        owner = owner or self._walk.builder.innermost("class")
        if owner is not None:
            self._keep(owner.fields, name, held)

    def _keep(self, fields: dict[str, Ref], name: str, what: Ref) -> None:
        known = fields.setdefault(name, what)
        if known != what and not self._references.keeps_type(known):
            fields[name] = UNKNOWN

    def _declared(self, ref: Ref) -> Declaration | None:
        """The class or function that a name stands for, if this file has declared it by now."""
        if ref.base != "name" or len(ref.steps) != 1 or ref.steps[0].called:
            return None
        declarations = self._walk.facts.declarations
        for at in range(self._known, len(declarations)):
            declared = declarations[at]
            if declared.receiver is None and declared.kind in ("class", "function"):
                self._by_name[declared.name] = declared
        self._known = len(declarations)
        return self._by_name.get(ref.steps[0].name)
