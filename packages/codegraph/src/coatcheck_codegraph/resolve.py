"""Connects the files of a project by their imports, calls and base classes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coatcheck_codegraph.entities import Declared, Entity, Instance, Module, Overloads, Package
from coatcheck_codegraph.evaluation import Evaluator
from coatcheck_codegraph.facts import IMPLIED, Call
from coatcheck_codegraph.javascript_values.calls import JavaScriptCalls
from coatcheck_codegraph.language import Outside
from coatcheck_codegraph.names import FileNames
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.python_values.overriding import Overrides
from coatcheck_codegraph.python_values.solver import PythonValueSolver


class ResolvedCall(NamedTuple):
    """A call on ``line``, inside the declaration ``caller`` (or FILE), of ``callee``.

    ``possible``: it may run others as well, or instead; each of them has its own ``ResolvedCall``.
    """

    line: int
    caller: int
    callee: Declared
    possible: bool = False


class ExternalCall(NamedTuple):
    """A call on ``line``, inside ``caller``, of something outside the archive, by its name."""

    line: int
    caller: int
    name: str


class ResolvedImport(NamedTuple):
    """An import on ``line`` of a file of the archive, or of an external module."""

    line: int
    target: str
    is_external: bool


class Inheritance(NamedTuple):
    """The declaration ``heir`` of a file extends ``base``."""

    heir: int
    base: Declared


@dataclass(slots=True)
class CallCounts:
    """Counts of the calls in the code. A call with several candidates is ``resolved``."""

    resolved: int = 0
    external: int = 0
    unresolved: int = 0

    @property
    def total(self) -> int:
        return self.resolved + self.external + self.unresolved

    @property
    def resolved_rate(self) -> float:
        """The share of resolved calls among those that do not leave the archive."""
        within = self.resolved + self.unresolved
        return round(self.resolved / within, 4) if within else 1.0


@dataclass(slots=True)
class Resolution:
    """The connections of a project, by the path of the file where they begin."""

    project: Project
    calls: Mapping[str, list[ResolvedCall]]
    imports: Mapping[str, list[ResolvedImport]]
    inherits: Mapping[str, list[Inheritance]]
    counts: CallCounts = field(default_factory=CallCounts)
    owners: Mapping[tuple[str, int], Declared] = field(default_factory=dict)
    """The classes of methods that are written outside of them, by path and index."""
    definitions: Mapping[tuple[str, int], Declared] = field(default_factory=dict)
    """The definitions of forward declarations, by path and index of the latter."""
    external: Mapping[str, list[ExternalCall]] = field(default_factory=dict)
    """Calls that lead out of the archive, if requested."""


def resolve(project: Project, *, external_calls: bool = False) -> Resolution:
    """Resolve every call, base class and import of a project.

    ``external_calls``: also keep the calls that lead out of the archive.
    """
    evaluator = Evaluator(project)
    flow = PythonValueSolver(evaluator)
    flow.run()
    overrides = Overrides(evaluator, set(flow.targets))
    flowing = JavaScriptCalls(evaluator)
    resolution = Resolution(project, {}, {}, {})
    calls: dict[str, list[ResolvedCall]] = {}
    imports: dict[str, list[ResolvedImport]] = {}
    inherits: dict[str, list[Inheritance]] = {}
    external: dict[str, list[ExternalCall]] = {}
    for path, names in evaluator.files.items():
        outside: list[ExternalCall] | None = [] if external_calls else None
        calls[path] = _calls(evaluator, flow, flowing, overrides, names, resolution.counts, outside)
        if outside:
            external[path] = outside
        inherits[path] = _inherits(evaluator, names)
        used = {call.callee.path for call in calls[path]}
        used.update(inheritance.base.path for inheritance in inherits[path])
        imports[path] = _imports(evaluator, names, used)
    resolution.calls, resolution.imports, resolution.inherits = calls, imports, inherits
    resolution.external = external
    resolution.owners, resolution.definitions = evaluator.owners(), evaluator.definitions()
    return resolution


def _calls(
    evaluator: Evaluator,
    flow: PythonValueSolver,
    flowing: JavaScriptCalls,
    overrides: Overrides,
    names: FileNames,
    counts: CallCounts,
    outside: list[ExternalCall] | None,
) -> list[ResolvedCall]:
    found: list[ResolvedCall] = []
    known: dict[tuple[int, int, int], Entity | None] = {}
    targets = flow.targets.get(names.path)
    of_file = flowing.of(names.path)
    for ordinal, call in enumerate(names.facts.calls):
        # Equal references of a project are one object, so its identity is a fast key.
        key = (call.caller, id(call.callee), call.arguments)
        if key not in known:
            known[key] = evaluator.callee(names.path, call.caller, call.callee, call.arguments)
        callee = known[key]
        caller = of_file.callers.get(ordinal, call.caller)
        flown = of_file.callees.get(ordinal)
        callees: Collection[Declared] = (callee,) if isinstance(callee, Declared) else ()
        if targets is not None:
            if ordinal in targets.written:
                callees = _together(callee, targets.written[ordinal], flow)
            if isinstance(callee, Declared) and callee in callees:
                callees = dict.fromkeys((*callees, *overrides.of(names, call, callee)))
        if flown is not None:
            counts.resolved += 1
            found += _flowing(call, caller, callee, flown)
        elif callees:
            counts.resolved += 1
            found += _resolved(call.line, caller, callees)
        elif isinstance(callee, Outside):
            counts.external += 1
            if outside is not None:
                name = evaluator.external_name(names, call.callee, callee)
                outside.append(ExternalCall(call.line, caller, name))
        else:
            counts.unresolved += 1
    if targets is not None:
        for implicit in targets.implicit.values():
            found += _resolved(implicit.line, implicit.caller, implicit.callees)
    for line, caller, further in of_file.further:
        found += [ResolvedCall(line, caller, one, len(further) > 1) for one in further]
    return found


def _together(
    by_name: Entity | None, by_value: Mapping[Declared, None], flow: PythonValueSolver
) -> Collection[Declared]:
    """The functions that a call runs, combined from names and from followed values.

    Names are right about a function that nothing can replace. Values know the replacement that a
    decorator made, the constructor that a class inherits, and other functions that arrive there.
    """
    if not isinstance(by_name, Declared):
        return by_value
    if by_name in flow.decorated and by_name in by_value:
        # Its decorator returns the function unchanged, and so do those of the others.
        return [one for one in by_value if one is by_name or one not in flow.decorated]
    if by_name in flow.decorated or by_name.declaration.kind == "class":
        return by_value
    if by_name not in by_value:
        return (by_name,)
    name = (by_name.path, by_name.declaration.qualified)
    # Others with its name and place are earlier definitions, which it has replaced.
    return [
        one for one in by_value if one is by_name or (one.path, one.declaration.qualified) != name
    ]


def _resolved(line: int, caller: int, callees: Collection[Declared]) -> list[ResolvedCall]:
    ordered = sorted(callees, key=lambda one: (one.path, one.index))
    return [ResolvedCall(line, caller, callee, len(ordered) > 1) for callee in ordered]


def _flowing(
    call: Call, caller: int, stated: Entity | None, callees: tuple[Declared, ...]
) -> Iterable[ResolvedCall]:
    """The functions that a call runs, by followed values and by names and types.

    For a call on ``self``, values decide alone: the object may override the method that its class
    has by name.
    """
    if (
        isinstance(stated, Declared)
        and stated not in callees
        and stated.declaration.kind == "function"
        and call.callee.base != "self"
    ):
        callees = (stated, *callees)
    return [ResolvedCall(call.line, caller, one, len(callees) > 1) for one in callees]


def _inherits(evaluator: Evaluator, names: FileNames) -> list[Inheritance]:
    found: dict[Inheritance, None] = {}
    for declared in names.declared:
        if declared.declaration.bases:
            for base in evaluator.ancestors.bases_of_part(declared):
                if isinstance(base, Declared):
                    found[Inheritance(declared.index, base)] = None
    return list(found)


def _imports(evaluator: Evaluator, names: FileNames, used: set[str]) -> list[ResolvedImport]:
    found: dict[ResolvedImport, None] = {}
    for ordinal, imported in enumerate(names.facts.imports):
        if imported.kind == IMPLIED:
            continue
        target = evaluator.target(names.path, ordinal)
        if isinstance(target, Outside):
            found[ResolvedImport(imported.line, target.module, True)] = None
            continue
        bound = [
            evaluator.bound(names.path, ordinal, binding.remote)
            for binding in imported.bindings
            if binding.remote not in ("", "*")
        ]
        for path in _imported_paths(target, bound, used):
            if path != names.path:
                found[ResolvedImport(imported.line, path, False)] = None
    return list(found)


def _imported_paths(
    target: Entity | None, bound: list[Entity | None], used: set[str]
) -> Iterable[str]:
    """The files that an import refers to.

    For a module: its file, and the files of submodules that the import names; only the latter if it
    names nothing else. For a package: the files that have an imported or used name, or the first.
    """
    match target:
        case None:
            return ()
        case Declared():
            return (target.path,)
        case Instance():
            return (target.of.path,)
        case Overloads():
            return dict.fromkeys(one.path for level in target.levels for one in level)
        case Module():
            submodules = [entity.path for entity in bound if isinstance(entity, Module)]
            if submodules and len(submodules) == len(bound):
                return submodules
            return (target.path, *submodules)
        case Package():
            paths = [entity.path for entity in bound if isinstance(entity, Module | Declared)]
            paths += sorted(used.intersection(target.paths))
            return dict.fromkeys(paths) if paths else target.paths[:1]
        case Outside():
            return ()
