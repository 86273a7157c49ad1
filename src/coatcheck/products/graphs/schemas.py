"""What the graphs surface's answers look like: the words of its contract, from the engine's."""

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
    """How far the analysis is, from 0 to 1, and in words: files parsed of all."""

    fraction: float
    note: str | None


class GraphUrls(msgspec.Struct, frozen=True):
    """Where the job is read, followed, cancelled, and where its deletion receipt is."""

    poll: str
    events: str
    cancel: str
    receipt: str


class GraphJobBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job. ``result`` is there once it has completed, ``error`` if it has failed.

    An event has no room for a large result: it says by ``resultUrl`` where that is.
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
    """Labels: Directory, File, Class, Function, Type, Module (external, and ExternalDependency as
    well), Domain, Subdomain."""

    id: str
    labels: list[str]
    properties: dict[str, Any]


class GraphRelationship(msgspec.Struct, frozen=True, rename="camel"):
    """Types: contains, declares, imports, calls, inherits; beside three of these contains_file and
    child_directory, defines_function and declares_class, and extends; belongsTo, partOf and
    dependsOn for domains."""

    id: str
    type: str
    start_node: str
    end_node: str
    properties: dict[str, Any]


class GraphBody(msgspec.Struct, frozen=True):
    """What there is, and how it hangs together."""

    nodes: list[GraphNode]
    relationships: list[GraphRelationship]


class GraphCalls(msgspec.Struct, frozen=True, rename="camel"):
    """What became of the calls: resolved to a definition, leading out of the archive, or neither.

    ``resolvedRate`` is the share of the first among those that do not lead out.
    """

    total: int
    resolved: int
    external: int
    unresolved: int
    resolved_rate: float


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """What was found, and what was not."""

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
    """A part of a domain: paths of its files, ids of what they declare."""

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
    """A part of the code. ``uses`` are ids of other domains."""

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
    """What was analysed, and when."""

    analysis_start_time: datetime
    analysis_end_time: datetime
    file_count: int
    languages: list[str]


class DomainNaming(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who named the domains: ``llm``; or ``clustering``, and why. ``attempts`` is how often the
    model was asked."""

    by: Literal["llm", "clustering"]
    attempts: int | None = None
    reason: str | None = None
    message: str | None = None


class GraphResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result. Paths, names, signatures and line numbers; never source text.

    ``domain`` and ``supermodel`` have the fields from ``runId`` to ``classAssignments``,
    ``supermodel`` those after them as well.
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
    """For the OpenAPI document: an envelope whose job has ended."""

    status: str
    job_id: str
    terminal: bool
    operation: str
    urls: GraphUrls
    result: GraphResult | None = None
    error: str | None = None
    error_code: str | None = None
