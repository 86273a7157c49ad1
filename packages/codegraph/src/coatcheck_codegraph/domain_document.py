"""The domains in the result document, with their members.

A domain may still be renamed after all of this is written. Wherever a result names or describes a
domain, it therefore has a placeholder, which ``DomainMarks`` replaces."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from coatcheck_codegraph.document import Additions
from coatcheck_codegraph.domains import Domain, DomainFile, Link, find_domains
from coatcheck_codegraph.graph import (
    VIEWS,
    Graph,
    Label,
    Node,
    Operation,
    Relationship,
    relationship,
)
from coatcheck_codegraph.project import MANIFEST
from coatcheck_codegraph.resolve import Resolution

# The links between the files of a project, from which domains are found.

_IMPORT_WEIGHT: Final = 1.0
_CALL_WEIGHT: Final = 1.0
_INHERITANCE_WEIGHT: Final = 2.0


def files_of(resolution: Resolution) -> list[DomainFile]:
    """The source files with the names that they declare, in order."""
    return [
        DomainFile(path, [declaration.name for declaration in facts.declarations])
        for path, facts in resolution.project.files.items()
        if facts.language != MANIFEST
    ]


def links_of(resolution: Resolution) -> list[Link]:
    """The uses between ``files_of``, with their weights, in order."""
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


SAMPLE_PATHS_MAX: Final = 25
SCHEMA_VERSION: Final = "1.0.0"
"""The schema version of ``supermodel`` results."""
_NO_NAME: Final = "archive"
"""The name of a repository whose files share no folder."""


class SubdomainEntry(msgspec.Struct, rename="camel"):
    """A part of a domain, with the paths of its files, and the ids of their declarations."""

    id: str
    name: str
    description: str
    description_summary: str
    path: str
    keywords: list[str]
    files: list[str]
    functions: list[str]
    classes: list[str]


class DomainEntry(msgspec.Struct, rename="camel", omit_defaults=True):
    """A domain. ``samplePaths`` helps to name it, and is not shown. Other lists are shown even if
    they are empty: clients rely on that."""

    id: str
    name: str
    description: str
    path: str
    keywords: list[str]
    file_count: int
    function_count: int
    uses: list[str]
    named_by: str = ""
    description_summary: str = ""
    key_files: list[str] | None = None
    responsibilities: list[str] | None = None
    subdomains: list[SubdomainEntry] | None = None
    sample_paths: list[str] = []


class DomainMarks:
    """Replaces the placeholders (marks) of domains with their names and descriptions, in a document
    that comes in pieces."""

    _MARK: Final = re.compile(rb'"\\u0001([nd])(\d{1,9})"')
    _BEGIN: Final = rb'"\u0001'
    _MARK_BYTES_MAX: Final = 32

    def __init__(self, domains: Sequence[DomainEntry]) -> None:
        encode = msgspec.json.encode
        self._texts = {
            b"n": [encode(domain.name) for domain in domains],
            b"d": [encode(domain.description) for domain in domains],
        }
        self._unread = b""

    @staticmethod
    def name(domain: int) -> str:
        return f"\x01n{domain}"

    @staticmethod
    def description(domain: int) -> str:
        return f"\x01d{domain}"

    def feed(self, piece: bytes) -> bytes:
        """The next part of the document, up to where a mark might be cut in two."""
        unread = self._unread + piece
        end = max(0, len(unread) - self._MARK_BYTES_MAX)
        begin = unread.rfind(
            self._BEGIN, max(0, end - self._MARK_BYTES_MAX), end + len(self._BEGIN)
        )
        if begin >= 0:
            end = min(begin, end)
        self._unread = unread[end:]
        return self._replaced(unread[:end])

    def finish(self) -> bytes:
        """The rest of the document."""
        return self._replaced(self._unread)

    def _replaced(self, data: bytes) -> bytes:
        return self._MARK.sub(self._text_of, data)

    def _text_of(self, mark: re.Match[bytes]) -> bytes:
        texts, number = self._texts[mark[1]], int(mark[2])
        # Code may have a name that looks like a mark. It stays as it is, which is harmless.
        return texts[number] if number < len(texts) else mark[0]


class Assigned(NamedTuple):
    """The domains, and their additions to the document."""

    domains: list[DomainEntry]
    additions: Additions


@dataclass(slots=True)
class _Home:
    """The domain of a file. ``subdomain`` is the index among those of the domain, if it has any."""

    domain: int
    subdomain: int | None


@dataclass(slots=True)
class _Members:
    """The ids of the declarations in a part."""

    functions: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)


def assign(
    resolution: Resolution, operation: Operation, run_id: str = "", version: str = ""
) -> Assigned:
    """Find the domains of a project, and assign every file, class and function to one.

    The result repeats ``run_id``, and ``version``, which identifies the analysed content.
    """
    files = files_of(resolution)
    found = find_domains(files, links_of(resolution))
    homes = {
        files[number].path: _Home(at, None)
        for at, domain in enumerate(found)
        for number in domain.files
    }
    for domain in found:
        for place, part in enumerate(domain.subdomains):
            for number in part.files:
                homes[files[number].path].subdomain = place
    assignment = _Assignment(resolution, found, homes)
    paths = [file.path for file in files]
    entries = [assignment.entry(at, paths) for at in range(len(found))]
    head: dict[str, object] = {"runId": run_id}
    if operation == "supermodel":
        head |= assignment.about(version)
    additions = Additions(
        head=head,
        stats=assignment.stats(),
        nodes=list(assignment.nodes()),
        relationships=assignment.relationships,
        fields={
            "relationships": assignment.uses,
            "fileAssignments": assignment.files,
            "functionAssignments": assignment.functions,
            "unassignedFunctions": tuple,
            "classAssignments": assignment.classes,
        },
    )
    return Assigned(entries, additions)


class _Assignment:
    """The assignments to domains, generated one by one: a project may have very many functions."""

    def __init__(
        self, resolution: Resolution, domains: Sequence[Domain], homes: dict[str, _Home]
    ) -> None:
        self._resolution = resolution
        self._domains = domains
        self._homes = homes
        self._counts: Counter[Label] = Counter()
        self._members: dict[tuple[int, int | None], _Members] = {}
        for label, node, home, _ in self._placed():
            self._counts[label] += 1
            members = self._members.setdefault((home.domain, home.subdomain), _Members())
            if label == "Function":
                members.functions.append(node.id)
            elif label == "Class":
                members.classes.append(node.id)
        self._in_domain: dict[int, list[_Members]] = {}
        for (domain, _), members in self._members.items():
            self._in_domain.setdefault(domain, []).append(members)

    def _placed(self) -> Iterator[tuple[Label, Node, _Home, str]]:
        """Files, classes and functions, with their domain and the path of their file."""
        for node in Graph(self._resolution, VIEWS["domain"]).nodes():
            label = node.labels[0]
            path = str(node.properties.get("filePath", ""))
            home = self._homes.get(path)
            if home is not None and label in ("File", "Class", "Function"):
                yield label, node, home, path

    def entry(self, at: int, paths: Sequence[str]) -> DomainEntry:
        domain = self._domains[at]
        parts = [
            self._part(at, place, [paths[number] for number in part.files])
            for place, part in enumerate(domain.subdomains)
        ]
        everywhere = self._in_domain.get(at, [])
        return DomainEntry(
            id=_id(at),
            name=domain.name,
            description=domain.description,
            description_summary=domain.description,
            path=domain.path,
            keywords=list(domain.keywords),
            file_count=len(domain.files),
            function_count=sum(len(members.functions) for members in everywhere),
            uses=[_id(used) for used in domain.uses],
            key_files=[paths[number] for number in domain.key_files],
            responsibilities=[part.name for part in parts] or list(domain.keywords),
            subdomains=parts,
            named_by="clustering",
            sample_paths=[paths[number] for number in domain.files[:SAMPLE_PATHS_MAX]],
        )

    def _part(self, at: int, place: int, paths: list[str]) -> SubdomainEntry:
        part = self._domains[at].subdomains[place]
        members = self._members.get((at, place), _Members())
        return SubdomainEntry(
            id=_part_id(at, place),
            name=part.name,
            description=part.description,
            description_summary=part.description,
            path=part.path,
            keywords=list(part.keywords),
            files=paths,
            functions=members.functions,
            classes=members.classes,
        )

    def stats(self) -> dict[str, int]:
        counts = self._counts
        return {
            "domainCount": len(self._domains),
            "subdomainCount": sum(len(domain.subdomains) for domain in self._domains),
            "assignedFileCount": counts["File"],
            "assignedFunctionCount": counts["Function"],
            "assignedClassCount": counts["Class"],
            "fileAssignments": counts["File"],
            "functionAssignments": counts["Function"],
            "unassignedFunctions": 0,
            "classAssignments": counts["Class"],
        }

    def about(self, version: str) -> dict[str, object]:
        """A summary of the whole result."""
        resolution = self._resolution
        files = resolution.project.files
        languages = Counter(facts.language for facts in files.values())
        del languages[MANIFEST]
        primary = min(languages, key=lambda name: (-languages[name], name), default="")
        kinds = Counter(
            label for label in _labels_of(resolution) if label in ("Class", "Function", "Type")
        )
        stats = self.stats()
        return {
            "repo": _repository(files),
            "version": version,
            "schemaVersion": SCHEMA_VERSION,
            "summary": {
                "filesProcessed": len(files),
                "classes": kinds["Class"],
                "functions": kinds["Function"],
                "types": kinds["Type"],
                "domains": stats["domainCount"],
                "subdomains": stats["subdomainCount"],
                "primaryLanguage": primary,
            },
            "artifacts": [
                _artifact("parse", "graph", "What files declare", dict(kinds)),
                _artifact(
                    "call",
                    "graph",
                    "What calls what",
                    {"calls": resolution.counts.total, "resolved": resolution.counts.resolved},
                ),
                _artifact("domain", "classification", "What belongs where", stats),
            ],
        }

    def nodes(self) -> Iterator[Node]:
        for at, domain in enumerate(self._domains):
            yield Node(
                _id(at),
                ("Domain",),
                {"name": DomainMarks.name(at), "description": DomainMarks.description(at)},
            )
            for place, part in enumerate(domain.subdomains):
                about: dict[str, str | int | bool] = {
                    "name": part.name,
                    "description": part.description,
                }
                yield Node(_part_id(at, place), ("Subdomain",), about)

    def relationships(self) -> Iterator[Relationship]:
        """Files belong to their domain. Files, classes and functions belong to their subdomain;
        classes and functions belong to the domain if it has no subdomains."""
        for at, domain in enumerate(self._domains):
            for place in range(len(domain.subdomains)):
                yield relationship("partOf", _part_id(at, place), _id(at))
            for used in domain.uses:
                yield relationship("dependsOn", _id(at), _id(used))
        for label, node, home, _ in self._placed():
            if home.subdomain is not None:
                yield relationship("belongsTo", node.id, _part_id(home.domain, home.subdomain))
            if home.subdomain is None or label == "File":
                yield relationship("belongsTo", node.id, _id(home.domain))

    def uses(self) -> Iterator[dict[str, object]]:
        for at, domain in enumerate(self._domains):
            for used, strength in zip(domain.uses, domain.strengths, strict=True):
                yield {
                    "from": DomainMarks.name(at),
                    "to": DomainMarks.name(used),
                    "type": "dependsOn",
                    "strength": strength,
                    "reason": "imports, calls and inheritance",
                }

    def files(self) -> Iterator[dict[str, str]]:
        for label, node, home, path in self._placed():
            if label == "File":
                yield {
                    "fileId": node.id,
                    "path": path,
                    "filePath": path,
                    "domainId": _id(home.domain),
                    "domainName": DomainMarks.name(home.domain),
                }

    def functions(self) -> Iterator[dict[str, str]]:
        for label, node, home, path in self._placed():
            if label != "Function":
                continue
            domain = self._domains[home.domain]
            subdomain = (
                DomainMarks.name(home.domain)
                if home.subdomain is None
                else domain.subdomains[home.subdomain].name
            )
            yield {
                "functionId": node.id,
                "qualifiedName": str(node.properties["qualifiedName"]),
                "path": path,
                "domainId": _id(home.domain),
                "subdomainName": subdomain,
                "parentDomain": DomainMarks.name(home.domain),
            }

    def classes(self) -> Iterator[dict[str, str]]:
        for label, node, home, path in self._placed():
            if label == "Class":
                yield {
                    "classId": node.id,
                    "qualifiedName": str(node.properties["qualifiedName"]),
                    "path": path,
                    "domainId": _id(home.domain),
                    "domainName": DomainMarks.name(home.domain),
                }


def _labels_of(resolution: Resolution) -> Iterator[Label]:
    for node in Graph(resolution, VIEWS["parse"]).nodes():
        yield node.labels[0]


def _repository(paths: Iterable[str]) -> str:
    """The top folder that holds all files, as in an archive from a code host; or a fixed name if
    there is none."""
    tops = {path.partition("/")[0] if "/" in path else "" for path in paths}
    return tops.pop() if len(tops) == 1 and "" not in tops else _NO_NAME


def _artifact(name: str, kind: str, label: str, about: object) -> dict[str, object]:
    return {"id": name, "kind": kind, "label": label, "metadata": about}


def _id(at: int) -> str:
    return f"domain-{at + 1}"


def _part_id(at: int, place: int) -> str:
    return f"subdomain-{at + 1}-{place + 1}"
