"""Domains as the result shows them, and what belongs to each."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from coatcheck.codegraph.coupling import files_of, links_of
from coatcheck.codegraph.domains import find_domains
from coatcheck.codegraph.graph import Graph
from coatcheck.codegraph.operations import VIEWS
from coatcheck.codegraph.resolve import Resolution

SAMPLE_PATHS_MAX: Final = 25


class DomainEntry(msgspec.Struct, rename="camel", omit_defaults=True):
    """A domain. ``samplePaths`` is for whoever names it, and is not shown."""

    id: str
    name: str
    description: str
    path: str
    keywords: list[str]
    file_count: int
    function_count: int
    uses: list[str]
    named_by: str = ""
    sample_paths: list[str] = []


class Assigned(NamedTuple):
    """The domains, and the fields of the document that say what is in which."""

    domains: list[DomainEntry]
    fields: dict[str, list[dict[str, str]]]


def assign(resolution: Resolution) -> Assigned:
    """Find the domains of a project, and put every file and function into one."""
    files = files_of(resolution)
    found = find_domains(files, links_of(resolution))
    home = {
        files[number].path: _id(at) for at, domain in enumerate(found) for number in domain.files
    }
    file_assignments: list[dict[str, str]] = []
    function_assignments: list[dict[str, str]] = []
    functions: Counter[str] = Counter()
    for node in Graph(resolution, VIEWS["domain"]).nodes():
        (label,) = node.labels
        path = str(node.properties.get("path" if label == "File" else "filePath", ""))
        domain = home.get(path)
        if domain is None:
            continue
        if label == "File":
            file_assignments.append({"fileId": node.id, "path": path, "domainId": domain})
        elif label == "Function":
            functions[domain] += 1
            name = str(node.properties["qualifiedName"])
            function_assignments.append(
                {"functionId": node.id, "qualifiedName": name, "path": path, "domainId": domain}
            )
    entries = [
        DomainEntry(
            id=_id(at),
            name=domain.name,
            description=domain.description,
            path=domain.path,
            keywords=list(domain.keywords),
            file_count=len(domain.files),
            function_count=functions[_id(at)],
            uses=[_id(used) for used in domain.uses],
            named_by="clustering",
            sample_paths=[files[number].path for number in domain.files[:SAMPLE_PATHS_MAX]],
        )
        for at, domain in enumerate(found)
    ]
    fields = {"fileAssignments": file_assignments, "functionAssignments": function_assignments}
    return Assigned(entries, fields)


def _id(at: int) -> str:
    return f"domain-{at + 1}"
