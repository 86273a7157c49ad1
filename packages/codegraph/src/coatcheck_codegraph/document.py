"""Writes the result of an operation as a JSON document, piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Protocol

import msgspec

from coatcheck_codegraph.graph import VIEWS, Graph, Node, Operation, Relationship
from coatcheck_codegraph.project import MANIFEST
from coatcheck_codegraph.resolve import Resolution

_WRITE_BYTES: Final = 256 * 1024


class Output(Protocol):
    """The binary file that a document is written to."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Processing:
    """Figures about the analysis. Times are RFC 3339. Files that were not read are counted by
    reason, and so are entries of the archive that are not regular files."""

    started_at: str
    ended_at: str
    milliseconds: int
    failed: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    entries_skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Additions:
    """Additions to a project's graph in a document: fields before all others, counts, nodes and
    relationships, and fields after the graph, each a list."""

    head: Mapping[str, object]
    stats: Mapping[str, int]
    nodes: Sequence[Node]
    relationships: Callable[[], Iterable[Relationship]]
    fields: Mapping[str, Callable[[], Iterable[object]]]


@dataclass(frozen=True, slots=True)
class Written:
    """A summary of a written document."""

    nodes: int
    relationships: int
    languages: tuple[str, ...]


def write_document(
    out: Output,
    operation: Operation,
    resolution: Resolution,
    processing: Processing,
    more: Additions | None = None,
) -> Written:
    """Write the result of ``operation`` on a project, with ``more`` if it is given."""
    graph = Graph(resolution, VIEWS[operation])
    nodes, relationships = graph.count_nodes(), graph.count_relationships()
    if more is not None:
        nodes.update(node.labels[0] for node in more.nodes)
        relationships.update(each.type for each in more.relationships())
    files = resolution.project.files.values()
    languages = tuple(sorted({facts.language for facts in files} - {MANIFEST}))
    head = dict({} if more is None else more.head) | {
        "generatedAt": processing.ended_at,
        "message": _message(operation, nodes, relationships, len(files)),
        "stats": _stats(resolution, processing, nodes, relationships)
        | dict({} if more is None else more.stats),
        "metadata": {
            "analysisStartTime": processing.started_at,
            "analysisEndTime": processing.ended_at,
            "fileCount": len(files)
            + sum(processing.failed.values())
            + sum(processing.skipped.values()),
            "languages": languages,
        },
    }
    out.write(msgspec.json.encode(head)[:-1])
    out.write(b',"graph":{"nodes":[')
    _write_all(out, chain(graph.nodes(), () if more is None else more.nodes))
    out.write(b'],"relationships":[')
    _write_all(out, chain(graph.relationships(), () if more is None else more.relationships()))
    out.write(b"]}")
    for name, items in ({} if more is None else more.fields).items():
        out.write(b"," + msgspec.json.encode(name) + b":[")
        _write_all(out, items())
        out.write(b"]")
    out.write(b"}")
    return Written(nodes.total(), relationships.total(), languages)


def _message(
    operation: Operation, nodes: Counter[str], relationships: Counter[str], files: int
) -> str:
    counted = "1 file" if files == 1 else f"{files} files"
    return (
        f"{operation} graph of {counted}: "
        f"{nodes.total()} nodes, {relationships.total()} relationships"
    )


def _stats(
    resolution: Resolution,
    processing: Processing,
    nodes: Counter[str],
    relationships: Counter[str],
) -> dict[str, object]:
    files = resolution.project.files
    kinds = Counter(
        declaration.kind
        for path, facts in files.items()
        for index, declaration in enumerate(facts.declarations)
        if (path, index) not in resolution.definitions
    )
    counts = resolution.counts
    return {
        "nodeCount": nodes.total(),
        "relationshipCount": relationships.total(),
        "nodeTypes": dict(sorted(nodes.items())),
        "relationshipTypes": dict(sorted(relationships.items())),
        "filesProcessed": len(files),
        "filesFailed": sum(processing.failed.values()),
        "filesFailedByReason": dict(sorted(processing.failed.items())),
        "filesSkipped": sum(processing.skipped.values()),
        "filesSkippedByReason": dict(sorted(processing.skipped.items())),
        "entriesSkipped": sum(processing.entries_skipped.values()),
        "entriesSkippedByReason": dict(sorted(processing.entries_skipped.items())),
        "filesWithSyntaxErrors": sum(facts.broken for facts in files.values()),
        "classes": kinds["class"],
        "functions": kinds["function"],
        "types": kinds["type"],
        "calls": {
            "total": counts.total,
            "resolved": counts.resolved,
            "external": counts.external,
            "unresolved": counts.unresolved,
            "resolvedRate": counts.resolved_rate,
        },
        "processingTimeMs": processing.milliseconds,
    }


def _write_all(out: Output, items: Iterable[object]) -> None:
    encoder = msgspec.json.Encoder()
    buffer = bytearray()
    separator = b""
    for item in items:
        buffer += separator
        buffer += encoder.encode(item)
        separator = b","
        if len(buffer) >= _WRITE_BYTES:
            out.write(bytes(buffer))
            buffer.clear()
    out.write(bytes(buffer))
