"""The bodies of the graphs HTTP API, and its statuses for the engine's states."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from coatcheck.domain.states import State

_PENDING: Final = "pending"
_PROCESSING: Final = "processing"
_FAILED: Final = "failed"

STATUSES: Final = {
    State.STAGED: _PENDING,
    State.QUEUED: _PENDING,
    State.DISPATCHING: _PROCESSING,
    State.PROCESSING: _PROCESSING,
    State.FINALIZING: _PROCESSING,
    State.RETRYING: _PROCESSING,
    State.CANCEL_REQUESTED: _PROCESSING,
    State.COMPLETED: "completed",
    State.FAILED: _FAILED,
    State.CANCELLED: _FAILED,
}


class GraphProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of the analysis: a fraction from 0 to 1, and a note such as the files parsed."""

    fraction: float
    note: str | None


class GraphUrls(msgspec.Struct, frozen=True):
    """The URLs to read, follow and cancel the job, and of its deletion receipt."""

    poll: str
    events: str
    cancel: str
    receipt: str


class GraphJobBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job. A completed job has a ``result``, a failed one an ``error``.

    An event has no room for a large result: it has a ``resultUrl`` instead.
    """

    status: str
    job_id: str
    terminal: bool
    operation: str
    urls: GraphUrls
    retry_after: int | None = None
    cancel_requested: bool = False
    progress: GraphProgress | None = None
    error: str | None = None
    error_code: str | None = None
    result_url: str | None = None
    result: Any = msgspec.UNSET


class GraphNode(msgspec.Struct, frozen=True):
    """A node. Its labels are Directory, File, Class, Function, Type, Module (external, with
    ExternalDependency as a second label), Domain and Subdomain."""

    id: str
    labels: list[str]
    properties: dict[str, Any]


class GraphRelationship(msgspec.Struct, frozen=True, rename="camel"):
    """A relationship. Its types are contains, declares, imports, calls and inherits. Three of these
    have aliases: contains_file and child_directory, defines_function and declares_class, extends.
    Domains have belongsTo, partOf and dependsOn."""

    id: str
    type: str
    start_node: str
    end_node: str
    properties: dict[str, Any]


class GraphBody(msgspec.Struct, frozen=True):
    """The nodes and the relationships between them."""

    nodes: list[GraphNode]
    relationships: list[GraphRelationship]


class GraphCalls(msgspec.Struct, frozen=True, rename="camel"):
    """Counts of calls: resolved to a definition, leading out of the archive, or unresolved.

    ``resolvedRate`` is the share of resolved calls among those that do not lead out.
    """

    total: int
    resolved: int
    external: int
    unresolved: int
    resolved_rate: float


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """Counts of nodes, relationships, files and calls."""

    node_count: int
    relationship_count: int
    node_types: dict[str, int]
    relationship_types: dict[str, int]
    files_processed: int
    files_failed: int
    files_failed_by_reason: dict[str, int]
    files_skipped: int
    files_skipped_by_reason: dict[str, int]
    entries_skipped: int
    entries_skipped_by_reason: dict[str, int]
    files_with_syntax_errors: int
    classes: int
    functions: int
    types: int
    calls: GraphCalls
    processing_time_ms: int
    domain_count: int | None = None
    subdomain_count: int | None = None
    assigned_file_count: int | None = None
    assigned_function_count: int | None = None
    assigned_class_count: int | None = None
    file_assignments: int | None = None
    function_assignments: int | None = None
    unassigned_functions: int | None = None
    class_assignments: int | None = None


class GraphSubdomain(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a domain: the paths of its files, and the ids of their functions and classes."""

    id: str
    name: str
    description: str
    description_summary: str
    path: str
    keywords: list[str]
    files: list[str]
    functions: list[str]
    classes: list[str]


class GraphDomain(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the code. ``uses`` has the ids of other domains."""

    id: str
    name: str
    description: str
    description_summary: str
    path: str
    keywords: list[str]
    file_count: int
    function_count: int
    uses: list[str]
    key_files: list[str]
    responsibilities: list[str]
    subdomains: list[GraphSubdomain]
    named_by: str


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """When the analysis ran, and the files and languages that it covered."""

    analysis_start_time: datetime
    analysis_end_time: datetime
    file_count: int
    languages: list[str]


class DomainNaming(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who named the domains: ``llm``; or ``clustering``, with the reason. ``attempts`` counts the
    requests to the model."""

    by: Literal["llm", "clustering"]
    attempts: int | None = None
    reason: str | None = None
    message: str | None = None


class GraphResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result. It has paths, names, signatures and line numbers, never source text.

    ``domain`` and ``supermodel`` have the fields from ``runId`` to ``classAssignments``;
    ``supermodel`` also has those after them.
    """

    generated_at: datetime
    message: str
    stats: Stats
    metadata: Metadata
    graph: GraphBody
    run_id: str | None = None
    domain_naming: DomainNaming | None = None
    domains: list[GraphDomain] | None = None
    relationships: list[dict[str, Any]] | None = None
    file_assignments: list[dict[str, Any]] | None = None
    function_assignments: list[dict[str, Any]] | None = None
    unassigned_functions: list[dict[str, Any]] | None = None
    class_assignments: list[dict[str, Any]] | None = None
    repo: str | None = None
    version: str | None = None
    schema_version: str | None = None
    summary: dict[str, Any] | None = None
    artifacts: list[dict[str, Any]] | None = None


class GraphCompleted(msgspec.Struct, frozen=True, rename="camel"):
    """A job that has ended, as the OpenAPI document describes it."""

    status: str
    job_id: str
    terminal: bool
    operation: str
    urls: GraphUrls
    result: GraphResult | None = None
    error: str | None = None
    error_code: str | None = None
