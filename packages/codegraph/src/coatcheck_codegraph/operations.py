"""The operations, and which part of the graph each of them shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

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
    # Other names of some of these, which published clients read.
    "contains_file",
    "child_directory",
    "defines_function",
    "declares_class",
    "extends",
    # Between what there is and the domains that were found.
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
