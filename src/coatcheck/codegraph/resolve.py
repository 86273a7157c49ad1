"""Connects the files of a project: which imports, calls and base classes lead where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coatcheck.codegraph.entities import Declared, Entity, Instance, Module, Overloads, Package
from coatcheck.codegraph.evaluation import Evaluator
from coatcheck.codegraph.facts import IMPLIED
from coatcheck.codegraph.language import Outside
from coatcheck.codegraph.names import FileNames
from coatcheck.codegraph.project import Project


class ResolvedCall(NamedTuple):
    """A call on ``line``, inside of the declaration ``caller`` (or FILE), of ``callee``."""

    line: int
    caller: int
    callee: Declared


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
    """What became of the calls. Nothing is guessed: what is not certain is ``unresolved``."""

    resolved: int = 0
    external: int = 0
    unresolved: int = 0

    @property
    def total(self) -> int:
        return self.resolved + self.external + self.unresolved

    @property
    def resolved_rate(self) -> float:
        """The share of the calls that do not leave the archive whose definition was found."""
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
    """What is declared and then defined elsewhere: where, by path and index of the former."""


def resolve(project: Project) -> Resolution:
    """Follow every call, base class and import of a project."""
    evaluator = Evaluator(project)
    resolution = Resolution(project, {}, {}, {})
    calls: dict[str, list[ResolvedCall]] = {}
    imports: dict[str, list[ResolvedImport]] = {}
    inherits: dict[str, list[Inheritance]] = {}
    for path, names in evaluator.files.items():
        calls[path] = _calls(evaluator, names, resolution.counts)
        inherits[path] = _inherits(evaluator, names)
        used = {call.callee.path for call in calls[path]}
        used.update(inheritance.base.path for inheritance in inherits[path])
        imports[path] = _imports(evaluator, names, used)
    resolution.calls, resolution.imports, resolution.inherits = calls, imports, inherits
    resolution.owners, resolution.definitions = evaluator.owners(), evaluator.definitions()
    return resolution


def _calls(evaluator: Evaluator, names: FileNames, counts: CallCounts) -> list[ResolvedCall]:
    found: list[ResolvedCall] = []
    known: dict[tuple[int, int, int], Entity | None] = {}
    for call in names.facts.calls:
        # Equal references of a project are one object, and quicker told apart by that.
        key = (call.caller, id(call.callee), call.arguments)
        if key not in known:
            known[key] = evaluator.callee(names.path, call.caller, call.callee, call.arguments)
        callee = known[key]
        if isinstance(callee, Declared):
            counts.resolved += 1
            found.append(ResolvedCall(call.line, call.caller, callee))
        elif isinstance(callee, Outside):
            counts.external += 1
        else:
            counts.unresolved += 1
    return found


def _inherits(evaluator: Evaluator, names: FileNames) -> list[Inheritance]:
    found: dict[Inheritance, None] = {}
    for declared in names.declared:
        if declared.declaration.bases:
            for base in evaluator.lineages.bases_of_part(declared):
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
    """The files that an import means.

    A module is its file, and the files of its submodules that the import names; those alone if it
    names nothing else. Of a package, it is those files that have what is named or used, or the
    first one.
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
