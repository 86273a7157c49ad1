"""Analyses one archive, in the process of an isolated handler.

The handler's folder holds the archive. Parser processes read the files in place, then names are
resolved across files, and the result is written beside the archive. A file that cannot be parsed
fails alone; an archive whose bytes do not match its directory fails the job.

No text of a file is returned, raised or logged: parsers send only names and positions, and only the
type of an exception.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from coatcheck.archives import ArchiveLimits, ArchiveReader, Entry
from coatcheck.domain.errors import ArchiveRejected, JobSignal, RetryLater
from coatcheck.domain.limits import ARCHIVE_ENTRIES_MAX, ARCHIVE_UNPACKED_MB_MAX
from coatcheck.job import Job
from coatcheck.products.graphs.analysis_request import GraphFailure
from coatcheck.products.graphs.parser_process import ParserLimits
from coatcheck.products.graphs.parser_wire import NotParsed, ParsedFiles, Work
from coatcheck.products.graphs.parsers import Done, ParserPool
from coatcheck_codegraph.document import Processing, write_document
from coatcheck_codegraph.domain_document import assign
from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.graph import Operation
from coatcheck_codegraph.languages import language_of, load
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.resolve import resolve


def work_items(members: Members) -> list[Work]:
    """The files to parse, largest first, so that no long one remains at the end."""
    largest_first = sorted(
        members.sources.items(), key=lambda member: (-member[1].unpacked_bytes, member[1].name)
    )
    return [Work(place) for place, _ in largest_first]


Skipped = Literal["vendored", "generated", "too_large"]
"""Why a source file is skipped: it is third-party code, it was generated from other files in the
archive, or it is too large."""

VENDORED_FOLDERS: Final = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".venv",
        "__MACOSX",
        "__pycache__",
        "bower_components",
        "node_modules",
        "site-packages",
    }
)
"""Folders whose contents a tool installed or generated."""

GENERATED_SUFFIXES: Final = (".min.js", ".bundle.js", "_pb2.py", "_pb2_grpc.py", ".pb.go")


@dataclass(slots=True)
class Members:
    """The entries to parse, by their index in the archive's list, and counts of skipped source
    files by reason. Nothing else is unpacked."""

    sources: dict[int, Entry] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


def select_sources(entries: Iterable[Entry], file_bytes_max: int) -> Members:
    """Choose the source files to parse among the entries of an archive."""
    members = Members()
    for place, entry in enumerate(entries):
        if entry.is_directory or language_of(entry.name) is None:
            continue
        reason = _skip_reason(entry, file_bytes_max)
        if reason is None:
            members.sources[place] = entry
        else:
            members.skipped[reason] += 1
    return members


def _skip_reason(entry: Entry, file_bytes_max: int) -> Skipped | None:
    if not VENDORED_FOLDERS.isdisjoint(entry.name.split("/")[:-1]):
        return "vendored"
    if entry.name.endswith(GENERATED_SUFFIXES):
        return "generated"
    if entry.unpacked_bytes > file_bytes_max:
        return "too_large"
    return None


PARSED: Final = 0.6
"""The progress when all files are parsed: for a large archive, the rest takes long."""
_PROGRESS_SECONDS: Final = 0.25
"""The shortest time between two progress reports."""

_FAILURES_LOGGED_MAX: Final = 100
"""Failed files that get a line in the job's log; all of them are counted."""

_decode_facts: Final = msgspec.msgpack.Decoder(FileFacts).decode


@dataclass(slots=True)
class Gathered:
    """The facts of each file by its index in the archive, still encoded, and counts of the files
    that have none."""

    encoded: dict[int, msgspec.Raw] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def facts(self) -> Iterator[FileFacts]:
        """The facts in the archive's order. Works once: it frees the encoded facts as it goes."""
        for place in sorted(self.encoded):
            yield _decode_facts(self.encoded.pop(place))


def gather(job: Job, reader: ArchiveReader, parsers: int, limits: ParserLimits) -> Gathered:
    """Parse all source files of the archive. Other files are not unpacked.

    Raises ArchiveRejected if bytes do not match the archive's directory, and JobCancelled.
    """
    members = select_sources(reader.entries, limits.file_bytes_max)
    _load_languages(members.sources.values())
    gathered = Gathered(skipped=members.skipped)
    progress = _Progress(job, len(members.sources))
    with ParserPool(reader, parsers, limits) as pool:
        for done in pool.run(work_items(members)):
            job.check_cancelled()
            if done is None:
                continue
            _record(job, reader, gathered, done)
            progress.one_more()
    return gathered


def _load_languages(sources: Iterable[Entry]) -> None:
    """Load the grammars before the parsers are forked, so that these share the memory."""
    for name in {language_of(entry.name) for entry in sources} - {None}:
        assert name is not None
        load(name)


def _record(job: Job, reader: ArchiveReader, gathered: Gathered, done: Done) -> None:
    place = done.work.place
    match done.answer:
        case ParsedFiles(facts):
            gathered.encoded[place] = facts
        case NotParsed(reason, error):
            gathered.failed[reason] += 1
            if gathered.failed.total() <= _FAILURES_LOGGED_MAX:
                job.log(
                    "a file was not analysed",
                    level="warning",
                    path=reader.entries[place].name,
                    reason=reason,
                    **({"error": error} if error else {}),
                )


class _Progress:
    """Reports how many files were parsed, at most every ``_PROGRESS_SECONDS``."""

    def __init__(self, job: Job, total: int) -> None:
        self._job = job
        self._total = total
        self._done = 0
        self._report()

    def one_more(self) -> None:
        self._done += 1
        if self._done == self._total or time.monotonic() - self._reported_at >= _PROGRESS_SECONDS:
            self._report()

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        share = self._done / self._total if self._total else 1.0
        self._job.progress(PARSED * share, f"{self._done} of {self._total} files")


REST: Final = "rest.json"
"""The file that the result is written to, except for its domains."""
DOMAINS: Final = "domains.json"
"""The file with the domains, if the operation has any: a language model may still rename them."""
_RESOLVED: Final = 0.85
_FOUND: Final = 0.95
"""The progress when names are resolved, and when domains are found; ``PARSED`` comes before."""
FILE_WALL_SECONDS: Final = 80.0
_WITH_DOMAINS: Final = frozenset({"domain", "supermodel"})


class AnalysisOrder(msgspec.Struct, frozen=True):
    """The operation and its limits. ``archive`` is the name of a file in the handler's folder.

    ``parsers`` is the number of processes, one for each core to use. ``niceness`` lowers their
    priority and that of the analysis. A file may take ``file_seconds`` of CPU time and
    ``file_wall_seconds`` by the clock, and its parser ``memory_mb``; source files of more than
    ``file_bytes_max`` are skipped. ``started_at`` is when the job's work began. The archive may
    have ``entries_max`` entries and unpack to ``unpacked_mb_max``; ``sha256`` is its hash, which
    the result repeats.
    """

    operation: str
    started_at: datetime
    archive: str = "archive.zip"
    parsers: int = 1
    niceness: int = 0
    file_seconds: float = 20.0
    file_wall_seconds: float = FILE_WALL_SECONDS
    file_bytes_max: int = 2 * 1024 * 1024
    memory_mb: int = 1024
    entries_max: int = ARCHIVE_ENTRIES_MAX
    unpacked_mb_max: int = ARCHIVE_UNPACKED_MB_MAX
    sha256: str = ""
    external_calls: bool = False


class CallSummary(msgspec.Struct, frozen=True):
    """Counts of calls: resolved to a definition, leading out of the archive, or neither."""

    resolved: int
    external: int
    unresolved: int


class AnalysisSummary(msgspec.Struct, frozen=True):
    """Figures about the result; ``bytes`` is the size of its file."""

    nodes: int
    relationships: int
    files_processed: int
    files_failed: int
    files_skipped: int
    languages: tuple[str, ...]
    calls: CallSummary
    bytes: int


def analyse(job: Job, order: AnalysisOrder) -> AnalysisSummary:
    """Analyse the archive, write the result to ``rest.json``, and return figures about it."""
    try:
        return _analyse(job, order)
    except ArchiveRejected as refusal:
        job.fail(f"{refusal} ({refusal.reason})", code=GraphFailure.ARCHIVE_REJECTED)
    except MemoryError:
        # A second attempt would need as much memory.
        job.fail(
            "the graph needs more memory than an analysis may have",
            code=GraphFailure.GRAPH_TOO_LARGE,
        )
    except OSError as error:
        raise disk_unavailable("the graph", error) from error
    except JobSignal:
        raise
    except Exception as error:
        # The message may quote names from the archive, so only the type is reported. The log says
        # where it was raised.
        raise AnalysisBroken(type(error).__name__) from error


class AnalysisBroken(Exception):
    """A defect in the analysis; its text is the type of the exception."""


def disk_unavailable(what: str, error: OSError) -> RetryLater:
    """The signal to raise if a file could not be written. Callers see it, so it has no path."""
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return RetryLater(
        f"{what} could not be written to disk: {reason}", code=GraphFailure.DISK_UNAVAILABLE
    )


def _analyse(job: Job, order: AnalysisOrder) -> AnalysisSummary:
    os.nice(order.niceness)  # the parsers inherit it
    began = time.monotonic()
    folder = job.temp_dir or Path.cwd()
    limits = ParserLimits(
        order.file_seconds, order.file_wall_seconds, order.file_bytes_max, order.memory_mb
    )
    archive_limits = ArchiveLimits.of(order.entries_max, order.unpacked_mb_max)
    with ArchiveReader(folder / order.archive, archive_limits) as reader:
        left_out = reader.directory.skipped
        gathered = gather(job, reader, order.parsers, limits)
    job.progress(PARSED, "resolving names")
    resolution = resolve(Project(gathered.facts()), external_calls=order.external_calls)
    job.check_cancelled()
    operation = msgspec.convert(order.operation, Operation)
    assigned = None
    if operation in _WITH_DOMAINS:
        job.progress(_RESOLVED, "finding domains")
        assigned = assign(resolution, operation, job.id, order.sha256)
        (folder / DOMAINS).write_bytes(msgspec.json.encode(assigned.domains))
        job.check_cancelled()
    elapsed = time.monotonic() - began
    processing = Processing(
        _rfc3339(order.started_at),
        # Computed from the elapsed time, so that the end and the duration agree.
        _rfc3339(order.started_at + timedelta(seconds=elapsed)),
        round(elapsed * 1000),
        gathered.failed,
        gathered.skipped,
        left_out,
    )
    job.progress(_FOUND, "writing the graph")
    result = folder / REST
    with result.open("xb") as out:
        written = write_document(
            out,
            operation,
            resolution,
            processing,
            None if assigned is None else assigned.additions,
        )
    job.check_cancelled()
    files = len(resolution.project.files)
    job.progress(1.0, f"{files} of {files + gathered.failed.total()} files")
    counts = resolution.counts
    return AnalysisSummary(
        written.nodes,
        written.relationships,
        len(resolution.project.files),
        gathered.failed.total(),
        gathered.skipped.total(),
        written.languages,
        CallSummary(counts.resolved, counts.external, counts.unresolved),
        result.stat().st_size,
    )


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
