"""The graph of a project: its nodes and relationships always in a stable order, and its views.

An id is made from what it identifies. So the same archive always has the same ids, and two archives
have the same ids for what they have in common."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from coatcheck_codegraph.entities import Declared
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts, Kind
from coatcheck_codegraph.resolve import Resolution

# The operations, and the part of the graph that each of them shows.

Operation = Literal["dependency", "call", "domain", "parse", "supermodel"]
OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)

Label = Literal[
    "Directory",
    "File",
    "Class",
    "Function",
    "Type",
    "Module",
    "ExternalDependency",
    "ExternalFunction",  # what is called and not in the archive, if that is asked for
    "Domain",
    "Subdomain",
]
RelationshipType = Literal[
    "contains",
    "declares",
    "imports",
    "calls",
    "inherits",
    # Aliases of some of these, which published clients read.
    "contains_file",
    "child_directory",
    "defines_function",
    "declares_class",
    "extends",
    # Between the other nodes and their domains.
    "belongsTo",
    "partOf",
    "dependsOn",
]


@dataclass(frozen=True, slots=True)
class View:
    """The nodes of these labels, and the relationships of these types between them."""

    labels: frozenset[Label]
    types: frozenset[RelationshipType]

    def shows(self, start: Label, kind: RelationshipType, end: Label) -> bool:
        return kind in self.types and start in self.labels and end in self.labels


VIEWS: Final[Mapping[Operation, View]] = {
    "dependency": View(frozenset({"File", "Module"}), frozenset({"imports"})),
    "call": View(
        frozenset({"File", "Class", "Function", "Type", "ExternalFunction"}),
        frozenset({"declares", "calls"}),
    ),
    "domain": View(
        frozenset({"File", "Class", "Function", "Module"}),
        frozenset({"declares", "imports", "calls"}),
    ),
    "parse": View(
        frozenset({"Directory", "File", "Class", "Function", "Type"}),
        frozenset({"contains", "declares", "inherits"}),
    ),
    "supermodel": View(frozenset(get_args(Label)), frozenset(get_args(RelationshipType))),
}


_ID_CHARACTERS: Final = 16
_LABELS: Final[dict[Kind, Label]] = {"class": "Class", "function": "Function", "type": "Type"}
"""A namespace has no node: its declarations belong to the file."""
_DECLARES: Final[dict[Label, RelationshipType]] = {
    "Class": "declares_class",
    "Function": "defines_function",
}
"""The alias of a declaration's relationship, by the declared kind."""


class Node(msgspec.Struct, frozen=True):
    id: str
    labels: tuple[Label, ...]
    properties: dict[str, str | int | bool]


class Relationship(msgspec.Struct, frozen=True, rename={"start": "startNode", "end": "endNode"}):
    id: str
    type: RelationshipType
    start: str
    end: str
    properties: dict[str, int | bool]


class _End(NamedTuple):
    """An end of a relationship."""

    id: str
    label: Label


class _Edge(NamedTuple):
    """A relationship before it has an id. ``line`` is 0 if it is not known.

    ``possible``: the call is one of several candidates, of which one runs.
    """

    kind: RelationshipType
    start: str
    end: str
    line: int
    possible: bool = False


class Graph:
    """The part of a project's connections that a view shows."""

    def __init__(self, resolution: Resolution, view: View) -> None:
        self._resolution = resolution
        self._view = view
        self._ends: dict[str, list[_End | None]] = {}

    # Nodes

    def nodes(self) -> Iterator[Node]:
        """The nodes: directories, files with their declarations, and external modules."""
        labels = self._view.labels
        if "Directory" in labels:
            yield from map(_directory_node, self._folders())
        for path, facts in self._resolution.project.files.items():
            if "File" in labels:
                yield _file_node(facts)
            for declaration, end in zip(facts.declarations, self._declared(path), strict=True):
                if end is not None and end.label in labels:
                    yield _declaration_node(end, facts, declaration)
        if "Module" in labels:
            for name in self._modules():
                labelled: tuple[Label, ...] = ("Module", "ExternalDependency")
                yield Node(_id("Module", name), labelled, {"name": name})
        if "ExternalFunction" in labels:
            for name in self._external_functions():
                yield Node(_id("ExternalFunction", name), ("ExternalFunction",), {"name": name})

    def count_nodes(self) -> Counter[str]:
        """The number of nodes of each label."""
        labels = self._view.labels
        counts: Counter[str] = Counter()
        if "Directory" in labels:
            counts["Directory"] = len(self._folders())
        for path in self._resolution.project.files:
            if "File" in labels:
                counts["File"] += 1
            for end in self._declared(path):
                if end is not None and end.label in labels:
                    counts[end.label] += 1
        if "Module" in labels:
            counts["Module"] = len(self._modules())
        if "ExternalFunction" in labels:
            counts["ExternalFunction"] = len(self._external_functions())
        return +counts

    def _folders(self) -> list[str]:
        folders: set[str] = set()
        for place in self._resolution.project.by_folder:
            folder = place
            while folder and folder not in folders:
                folders.add(folder)
                folder = posixpath.dirname(folder)
        return sorted(folders)

    def _modules(self) -> list[str]:
        return sorted(
            {
                imported.target
                for imports in self._resolution.imports.values()
                for imported in imports
                if imported.is_external
            }
        )

    def _external_functions(self) -> list[str]:
        return sorted({call.name for calls in self._resolution.external.values() for call in calls})

    def _declared(self, path: str) -> list[_End | None]:
        """The nodes of a file's declarations, by their index; None for one without a node."""
        ends = self._ends.get(path)
        if ends is None:
            seen: Counter[tuple[str, str]] = Counter()
            ends = []
            for index, declaration in enumerate(self._resolution.project.files[path].declarations):
                label = _LABELS.get(declaration.kind)
                if label is None or (path, index) in self._resolution.definitions:
                    ends.append(None)
                    continue
                ordinal = seen[label, declaration.qualified]
                seen[label, declaration.qualified] += 1
                ends.append(_End(_id(label, path, declaration.qualified, str(ordinal)), label))
            self._ends[path] = ends
        return ends

    # Relationships

    def relationships(self) -> Iterator[Relationship]:
        """All relationships, file by file. Each call has its own."""
        for edges in self._edges():
            seen: Counter[_Edge] = Counter()
            for edge in edges:
                ordinal = seen[edge]
                seen[edge] += 1
                yield Relationship(
                    _id(edge.kind, edge.start, edge.end, str(edge.line), str(ordinal)),
                    edge.kind,
                    edge.start,
                    edge.end,
                    _properties(edge),
                )

    def count_relationships(self) -> Counter[str]:
        """The number of relationships of each type."""
        return Counter(edge.kind for edges in self._edges() for edge in edges)

    def _edges(self) -> Iterator[Iterable[_Edge]]:
        """The relationships that begin at directories, then those that begin in each file."""
        types = self._view.types
        if "contains" in types:
            yield self._contains()
        for path in self._resolution.project.files:
            if "declares" in types:
                yield self._declares(path)
            if "inherits" in types:
                yield self._inherits(path)
            if "imports" in types:
                yield self._imports(path)
            if "calls" in types:
                yield self._calls(path)

    def _contains(self) -> Iterator[_Edge]:
        for folder in self._folders():
            around = posixpath.dirname(folder)
            here = _id("Directory", folder)
            if around:
                yield _Edge("contains", _id("Directory", around), here, 0)
                yield _Edge("child_directory", _id("Directory", around), here, 0)
            for path in self._resolution.project.by_folder.get(folder, ()):
                yield _Edge("contains", here, _id("File", path), 0)
                yield _Edge("contains_file", here, _id("File", path), 0)

    def _declares(self, path: str) -> Iterator[_Edge]:
        file = _End(_id("File", path), "File")
        declared = self._declared(path)
        declarations = self._resolution.project.files[path].declarations
        for index, end in enumerate(declared):
            if end is None:
                continue
            start: _End | None = None
            around = self._resolution.owners.get((path, index))
            if around is not None:
                start = self._end(around)
            else:
                parent = declarations[index].parent
                while parent != FILE and start is None:
                    start = declared[parent]
                    parent = declarations[parent].parent
            start = start or file
            if self._view.shows(start.label, "declares", end.label):
                yield _Edge("declares", start.id, end.id, 0)
                if end.label in _DECLARES:
                    yield _Edge(_DECLARES[end.label], start.id, end.id, 0)

    def _inherits(self, path: str) -> Iterator[_Edge]:
        declared = self._declared(path)
        for heir, base in self._resolution.inherits[path]:
            start, end = declared[heir], self._end(base)
            if start and end and self._view.shows(start.label, "inherits", end.label):
                yield _Edge("inherits", start.id, end.id, 0)
                yield _Edge("extends", start.id, end.id, 0)

    def _imports(self, path: str) -> Iterator[_Edge]:
        start = _id("File", path)
        for line, target, is_external in self._resolution.imports[path]:
            label: Label = "Module" if is_external else "File"
            if self._view.shows("File", "imports", label):
                yield _Edge("imports", start, _id(label, target), line)

    def _calls(self, path: str) -> Iterator[_Edge]:
        file = _End(_id("File", path), "File")
        declared = self._declared(path)
        declarations = self._resolution.project.files[path].declarations

        def begin(caller: int) -> _End:
            start: _End | None = None
            while caller != FILE and start is None:
                start = declared[caller]
                caller = declarations[caller].parent
            return start or file

        for line, caller, callee, possible in self._resolution.calls[path]:
            start, end = begin(caller), self._end(callee)
            if end and self._view.shows(start.label, "calls", end.label):
                yield _Edge("calls", start.id, end.id, line, possible)
        for line, caller, name in self._resolution.external.get(path, ()):
            start = begin(caller)
            if self._view.shows(start.label, "calls", "ExternalFunction"):
                yield _Edge("calls", start.id, _id("ExternalFunction", name), line)

    def _end(self, declared: Declared) -> _End | None:
        return self._declared(declared.path)[declared.index]


def relationship(kind: RelationshipType, start: str, end: str) -> Relationship:
    """A relationship that exists at most once between two nodes."""
    return Relationship(_id(kind, start, end), kind, start, end, {})


def _id(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARACTERS]


def _properties(edge: _Edge) -> dict[str, int | bool]:
    properties: dict[str, int | bool] = {"line": edge.line} if edge.line else {}
    if edge.possible:
        properties["possible"] = True
    return properties


def _directory_node(path: str) -> Node:
    name = posixpath.basename(path)
    return Node(_id("Directory", path), ("Directory",), {"name": name, "path": path})


def _file_node(facts: FileFacts) -> Node:
    properties: dict[str, str | int | bool] = {
        "name": posixpath.basename(facts.path),
        "path": facts.path,
        "filePath": facts.path,
        "language": facts.language,
        "lines": facts.lines,
        "startLine": 1,
        "endLine": max(facts.lines, 1),
    }
    if facts.broken:
        properties["syntaxErrors"] = True
    return Node(_id("File", facts.path), ("File",), properties)


def _declaration_node(end: _End, facts: FileFacts, declaration: Declaration) -> Node:
    properties: dict[str, str | int | bool] = {
        "name": declaration.name,
        "qualifiedName": declaration.qualified,
        "filePath": facts.path,
        "language": facts.language,
        "startLine": declaration.line,
        "endLine": declaration.end_line,
    }
    if end.label == "Function":
        properties["signature"] = declaration.signature
    return Node(end.id, (end.label,), properties)
