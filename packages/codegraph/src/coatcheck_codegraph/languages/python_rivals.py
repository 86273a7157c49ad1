"""Functions and classes of one name in one place of a Python file: the last replaces the others.

That is, if it is certain to be declared. What an ``if`` or an ``except`` declares may be there, or
the other one; and so it is with a name that is declared and gets another value, too.
"""

from __future__ import annotations

import msgspec
from tree_sitter import Node

from coatcheck_codegraph.facts import FILE, FileFacts, Ref
from coatcheck_codegraph.languages.rivals import Conditions, hide, leave_open


class PythonRivals:
    """What one file declares, and under which conditions."""

    def __init__(self, facts: FileFacts) -> None:
        self._facts = facts
        self._conditions = Conditions()
        self._declared: dict[tuple[int, str], list[int]] = {}
        self._conditional: set[int] = set()
        self._elsewhere: dict[str, list[Ref]] = {}

    def enter(self, node: Node) -> None:
        """What is inside of ``node`` may not happen."""
        self._conditions.enter(node)

    def declared(self, index: int, node: Node) -> None:
        """A function or a class is declared here."""
        declared = self._facts.declarations[index]
        parent = declared.parent
        around = None if parent == FILE else self._facts.declarations[parent]
        if self._conditions.hold_for(node, around):
            self._conditional.add(index)
        self._declared.setdefault((parent, declared.name), []).append(index)

    def assigned_elsewhere(self, name: str, value: Ref) -> None:
        """A function assigns to a variable that is not its own (``global``, ``nonlocal``)."""
        self._elsewhere.setdefault(name, []).append(value)

    def _settle_elsewhere(self) -> None:
        variables = self._facts.variables
        for name, values in self._elsewhere.items():
            if (
                any(value != variables.get(name, value) for value in values)
                or (FILE, name) in self._declared
            ):
                variables[name] = Ref("opaque", ())

    def settle(self) -> None:
        """When the file was walked: let each name mean the last of its declarations, or none."""
        self._settle_elsewhere()
        replaced_until: dict[tuple[int, str], int] = {}
        for (parent, name), found in self._declared.items():
            last = found[-1]
            if self._gets_other_value(parent, name) or (
                len(found) > 1 and last in self._conditional
            ):
                leave_open(self._facts, found)
            elif len(found) > 1:
                replaced_until[(parent, name)] = self._facts.declarations[last].line
                for index in found[:-1]:
                    hide(self._facts.declarations[index])
        self._obscure_calls(replaced_until)

    def _gets_other_value(self, parent: int, name: str) -> bool:
        """Whether a name that is declared is assigned to, too. ``f = cached(f)`` is still f."""
        if parent == FILE:
            held = self._facts.variables.get(name)
        else:
            around = self._facts.declarations[parent]
            held = around.locals.get(name) if around.kind == "function" else None
        return held is not None and not (held.steps and held.steps[-1].called)

    def _obscure_calls(self, replaced_until: dict[tuple[int, str], int]) -> None:
        """What runs before the last declaration, and is not in a function, means another one."""
        calls = self._facts.calls
        for at, call in enumerate(calls if replaced_until else ()):
            steps = call.callee.steps
            if call.callee.base == "name" and steps:
                until = replaced_until.get((call.caller, steps[0].name), 0)
                if call.line < until:
                    calls[at] = msgspec.structs.replace(call, callee=Ref("opaque", steps))
