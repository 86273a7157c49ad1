"""How much the files of a project have to do with each other: what domains are found by."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from coatcheck_codegraph.domains import DomainFile, Link
from coatcheck_codegraph.project import MANIFEST
from coatcheck_codegraph.resolve import Resolution

_IMPORT_WEIGHT: Final = 1.0
_CALL_WEIGHT: Final = 1.0
_INHERITANCE_WEIGHT: Final = 2.0


def files_of(resolution: Resolution) -> list[DomainFile]:
    """The files of source code with the names that they declare, in order."""
    return [
        DomainFile(path, [declaration.name for declaration in facts.declarations])
        for path, facts in resolution.project.files.items()
        if facts.language != MANIFEST
    ]


def links_of(resolution: Resolution) -> list[Link]:
    """Which of ``files_of`` use which, and how much, in order."""
    numbers = {file.path: number for number, file in enumerate(files_of(resolution))}
    weights: defaultdict[tuple[str, str], float] = defaultdict(float)
    for path in numbers:
        for imported in resolution.imports[path]:
            if not imported.is_external:
                weights[path, imported.target] += _IMPORT_WEIGHT
        for call in resolution.calls[path]:
            weights[path, call.callee.path] += _CALL_WEIGHT
        for inheritance in resolution.inherits[path]:
            weights[path, inheritance.base.path] += _INHERITANCE_WEIGHT
    return [
        Link(numbers[user], numbers[used], weight)
        for (user, used), weight in weights.items()
        if user != used and used in numbers
    ]
