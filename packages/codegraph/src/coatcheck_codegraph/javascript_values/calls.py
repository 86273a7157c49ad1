"""Connects the JavaScript calls found by following values with the declarations of a project.

An anonymous function becomes a declaration if it is called from code that is not around it.
Otherwise, and where it is called at once or by a built-in, it belongs to the declaration around it,
which then makes its calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from coatcheck_codegraph.entities import Declared, Module
from coatcheck_codegraph.evaluation import Evaluator
from coatcheck_codegraph.facts import FILE, Declaration
from coatcheck_codegraph.javascript_values.facts import JavaScriptFlow, Records, call_of
from coatcheck_codegraph.javascript_values.solver import CallTarget, SolvedCall, solved

ANONYMOUS: Final = "(anonymous)"
_BETWEEN_NAMES: Final = re.compile(r"\.(?![^\[]*\])")


@dataclass(slots=True)
class FileCalls:
    """What flows tell of the calls of one file."""

    callees: dict[int, tuple[Declared, ...]] = field(default_factory=dict)
    """By the ordinal of a call, what it may run."""
    callers: dict[int, int] = field(default_factory=dict)
    """By the ordinal of a call, the declaration that makes it, if that was not one before."""
    further: list[tuple[int, int, tuple[Declared, ...]]] = field(default_factory=list)
    """Calls that are not written as such: line, caller, and what they may run."""


_NOTHING: Final = FileCalls()


class JavaScriptCalls:
    """The calls that are found by the flows of a project."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._project = evaluator.project
        self._files = evaluator.files
        self._by_path: dict[str, FileCalls] = {}
        self._declared: dict[tuple[str, int], int] = {}
        self._imports: dict[str, dict[str, int]] = {}
        flows = {
            path: facts.javascript_values
            for path, facts in self._project.files.items()
            if facts.javascript_values is not None
        }
        if flows:
            self._join(flows)

    def of(self, path: str) -> FileCalls:
        return self._by_path.get(path, _NOTHING)

    def _join(self, flows: Mapping[str, JavaScriptFlow]) -> None:
        calls = list(solved(flows, self._module))
        functions = {path: Records(of_file.functions) for path, of_file in flows.items()}
        self._declare(flows, functions, calls)
        for path in dict.fromkeys(path for path, _ in self._declared):
            self._move_calls(path, flows[path], functions[path])
        for call in calls:
            self._note(call, functions[call.path])

    def _module(self, path: str, specifier: str) -> str | None:
        imports = self._imports.get(path)
        if imports is None:
            imports = self._imports[path] = {
                imported.module: ordinal
                for ordinal, imported in enumerate(self._project.files[path].imports)
            }
        if specifier not in imports:
            return None
        target = self._evaluator.target(path, imports[specifier])
        return target.path if isinstance(target, Module) else None

    def _declare(
        self,
        flows: Mapping[str, JavaScriptFlow],
        functions: Mapping[str, Records],
        calls: list[SolvedCall],
    ) -> None:
        """Make declarations of functions without a name that are called from elsewhere."""
        needed = {
            (target.path, target.function)
            for call in calls
            if not call.quiet
            for target in call.targets
            if target.index < 0
        }
        for path, number in sorted(needed):
            facts = self._project.files[path]
            said = flows[path].unnamed[number]
            parent = self._around(path, functions[path], functions[path][number][1])
            called = said.name or ANONYMOUS
            around = "" if parent == FILE else facts.declarations[parent].qualified + "."
            declaration = Declaration(
                "function",
                _BETWEEN_NAMES.split(called)[-1],
                around + called,
                said.line,
                said.end_line,
                parent,
                called + said.signature,
            )
            self._declared[path, number] = len(facts.declarations)
            declared = Declared(path, len(facts.declarations), declaration)
            self._files[path].declared.append(declared)
            facts.declarations.append(declaration)

    def _around(self, path: str, functions: Records, number: int) -> int:
        """The declaration that a function is, or is part of."""
        while number > 0:
            index, around = functions[number][:2]
            if index >= 0:
                return int(index)
            if (path, number) in self._declared:
                return self._declared[path, number]
            number = around
        return FILE

    def _move_calls(self, path: str, flows: JavaScriptFlow, functions: Records) -> None:
        """Say which calls are made by what has become a declaration."""
        callers = self._by_path.setdefault(path, FileCalls()).callers
        own = {index for (where, _), index in self._declared.items() if where == path}
        calls = Records(flows.calls)
        for number in range(len(calls)):
            call = call_of(calls[number])
            if call.ordinal >= 0:
                around = self._around(path, functions, call.function)
                if around in own:
                    callers[call.ordinal] = around

    def _note(self, call: SolvedCall, functions: Records) -> None:
        callees = tuple(
            self._files[target.path].declared[index]
            for target in call.targets
            if (index := self._index(target)) >= 0
        )
        if not callees:
            return
        of_file = self._by_path.setdefault(call.path, FileCalls())
        if call.ordinal < 0:
            caller = self._around(call.path, functions, call.function)
            of_file.further.append((call.line, caller, callees))
        else:
            before = of_file.callees.get(call.ordinal, ())
            of_file.callees[call.ordinal] = tuple(dict.fromkeys((*before, *callees)))

    def _index(self, target: CallTarget) -> int:
        if target.index >= 0:
            return target.index
        return self._declared.get((target.path, target.function), -1)
