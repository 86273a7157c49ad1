"""What exists in C and C++ only where the preprocessor keeps it.

Which of the branches of an ``#if`` are kept is not known here. So what only one of them has is not
certain where its name may come from elsewhere, too: from another branch, or from the standard
library. A macro may come from any header: it is certain under its own condition alone. The guard
of a header is no condition: what it keeps out was there before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from tree_sitter import Node

from coatcheck_codegraph.builder import end_line_of, line_of, name_of, text
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts, Ref
from coatcheck_codegraph.languages.c_builtins import C_FUNCTIONS
from coatcheck_codegraph.languages.rivals import Conditions, hide, leave_open, obscure

_PLUS_PLUS: Final = re.compile(r"__cplusplus|defined *\(? *__cplusplus *\)?")
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
        if _PLUS_PLUS.fullmatch(text(_condition_of(node))):
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
        """When the file was walked: let no name mean what may not be there."""
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
                leave_open(self._facts, self._rivals(found))
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

    def _rivals(self, found: list[int]) -> list[int]:
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
    """``#ifndef NAME``, ``#define NAME``: what follows is there once."""
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
    """The types of a function's parameters, by which overloads are told apart."""
    _, _, parameters = declared.signature.partition("(")
    return "".join(_PARAMETER_NAME.sub("", parameters).split())
