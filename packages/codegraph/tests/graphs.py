"""What the analysis sees in a handful of files written in a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coatcheck_codegraph.entities import Declared
from coatcheck_codegraph.facts import FILE, FileFacts
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.reading import parse, read_folder
from coatcheck_codegraph.resolve import CallCounts, Resolution, resolve


@dataclass
class Seen:
    """Declarations are written ``path:qualified``; the file itself is its path."""

    resolution: Resolution
    calls: set[tuple[str, str, int]] = field(default_factory=set)
    """(caller, callee, line), of calls that can run nothing else"""
    possible: set[tuple[str, str, int]] = field(default_factory=set)
    """The same of those that may run one of several."""
    imports: set[tuple[str, str]] = field(default_factory=set)
    """(path, path in the archive or name of the external module)"""
    inherits: set[tuple[str, str]] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)

    @property
    def counts(self) -> CallCounts:
        return self.resolution.counts

    @property
    def any_calls(self) -> set[tuple[str, str, int]]:
        """All of them, whether they can run something else or not."""
        return self.calls | self.possible

    @property
    def callees(self) -> set[tuple[str, str]]:
        """(caller, callee), wherever, whether it can run something else or not."""
        return {(caller, callee) for caller, callee, _line in self.any_calls}

    @property
    def places(self) -> set[tuple[str, int, str, int]]:
        """(path and line of the call, path and line of what it runs): overloads have one name."""
        return {
            (path, call.line, call.callee.path, call.callee.declaration.line)
            for path, calls in self.resolution.calls.items()
            for call in calls
        }

    def runs(self, path: str, line: int) -> set[int]:
        """The lines of what the calls on a line run."""
        return {to for origin, at, _, to in self.places if (origin, at) == (path, line)}

    def facts(self, path: str) -> FileFacts:
        return self.resolution.project.files[path]


def parsed(path: str, source: str | bytes) -> FileFacts:
    """The facts of one file."""
    return parse(path, source.encode() if isinstance(source, str) else source)


def seen_in(project: Project) -> Seen:
    """What the analysis sees in a project."""
    resolution = resolve(project)
    seen = Seen(resolution)
    for path, facts in project.files.items():

        def name(index: int, path: str = path, facts: FileFacts = facts) -> str:
            return path if index == FILE else f"{path}:{facts.declarations[index].qualified}"

        seen.declared.update(name(index) for index in range(len(facts.declarations)))
        for call in resolution.calls[path]:
            found = seen.possible if call.possible else seen.calls
            found.add((name(call.caller), _name(call.callee), call.line))
        for imported in resolution.imports[path]:
            seen.imports.add((path, imported.target))
        for inheritance in resolution.inherits[path]:
            seen.inherits.add((name(inheritance.heir), _name(inheritance.base)))
    return seen


def analysed(sources: Mapping[str, str], operation: str = "supermodel") -> Seen:
    """What the analysis sees in these files."""
    del operation  # the views are a matter of the graph; what is seen is the same for all
    return seen_in(Project([parsed(path, source) for path, source in sources.items()]))


def analysed_folder(folder: Path) -> Seen:
    """What the analysis sees in the files of a folder that are in a language it understands."""
    return seen_in(read_folder(folder))


def _name(declared: Declared) -> str:
    return f"{declared.path}:{declared.declaration.qualified}"
