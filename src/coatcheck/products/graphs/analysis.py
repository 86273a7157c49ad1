"""Analyses one archive, in the process of an isolated handler.

The handler's folder holds the archive. It is opened, its files are parsed by processes that read it
in place, names are resolved across files, and the result is written beside it. What fails for one
file fails that file alone; an archive whose bytes are not what it promises fails the job.

No text of a file is in what is returned, raised or logged: parsers hand over names and places only,
and of what they raise, the type.
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
from coatcheck.products.graphs.parser_process import ParserLimits
from coatcheck.products.graphs.parser_wire import NotParsed, ParsedFiles, Work
from coatcheck.products.graphs.parsers import Done, Parsers
from coatcheck_codegraph.document import Processing, write_document
from coatcheck_codegraph.domain_document import assign
from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.graph import Operation
from coatcheck_codegraph.languages import language_of, load
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.resolve import resolve


def pieces_of_work(members: Members) -> list[Work]:
    """Files to parse one by one, the largest first so that none is left for the end."""
    largest_first = sorted(
        members.sources.items(), key=lambda member: (-member[1].unpacked_bytes, member[1].name)
    )
    return [Work(place) for place, _ in largest_first]


Skipped = Literal["vendored", "generated", "too_large"]
"""Why source code is left out: it is somebody else's, it was made from other files in the archive,
or there is too much of it in one file."""

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
"""What is inside of a folder of such a name is installed or kept by a tool, not written here."""

GENERATED_SUFFIXES: Final = (".min.js", ".bundle.js", "_pb2.py", "_pb2_grpc.py", ".pb.go")


@dataclass(slots=True)
class Members:
    """The entries to parse, by their places in the archive's list, and what source code is left
    out. Nothing else is unpacked."""

    sources: dict[int, Entry] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


def sorted_out(entries: Iterable[Entry], file_bytes_max: int) -> Members:
    """The members of an archive by what is to be done with them."""
    members = Members()
    for place, entry in enumerate(entries):
        if entry.is_directory or language_of(entry.name) is None:
            continue
        reason = _left_out(entry, file_bytes_max)
        if reason is None:
            members.sources[place] = entry
        else:
            members.skipped[reason] += 1
    return members


def _left_out(entry: Entry, file_bytes_max: int) -> Skipped | None:
    if not VENDORED_FOLDERS.isdisjoint(entry.name.split("/")[:-1]):
        return "vendored"
    if entry.name.endswith(GENERATED_SUFFIXES):
        return "generated"
    if entry.unpacked_bytes > file_bytes_max:
        return "too_large"
    return None


PARSED: Final = 0.6
"""How far an analysis is when all files are parsed: of a large archive, the rest takes long."""
_PROGRESS_SECONDS: Final = 0.25
"""How often progress is told, at most."""

_FAILURES_TOLD_MAX: Final = 100
"""Files whose failure has a line in the job's log; all of them are counted."""

_decode_facts: Final = msgspec.msgpack.Decoder(FileFacts).decode


@dataclass(slots=True)
class Gathered:
    """The facts of each file by its place in the archive, still encoded, and what has none."""

    encoded: dict[int, msgspec.Raw] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def facts(self) -> Iterator[FileFacts]:
        """The facts in the order of the archive. Can be asked for once: they are not kept twice."""
        for place in sorted(self.encoded):
            yield _decode_facts(self.encoded.pop(place))


def gather(job: Job, reader: ArchiveReader, parsers: int, limits: ParserLimits) -> Gathered:
    """Parse all source files of the archive. What is not parsed is not unpacked.

    Raises ArchiveRejected if bytes are not what the archive promises, and JobCancelled.
    """
    members = sorted_out(reader.entries, limits.file_bytes_max)
    _load_languages(members.sources.values())
    gathered = Gathered(skipped=members.skipped)
    progress = _Progress(job, len(members.sources))
    with Parsers(reader, parsers, limits) as crew:
        for done in crew.run(pieces_of_work(members)):
            job.check_cancelled()
            if done is None:
                continue
            _note(job, reader, gathered, done)
            progress.one_more()
    return gathered


def _load_languages(sources: Iterable[Entry]) -> None:
    """Load them before there are parsers, which then have them in common."""
    for name in {language_of(entry.name) for entry in sources} - {None}:
        assert name is not None
        load(name)


def _note(job: Job, reader: ArchiveReader, gathered: Gathered, done: Done) -> None:
    place = done.work.place
    match done.answer:
        case ParsedFiles(facts):
            gathered.encoded[place] = facts
        case NotParsed(reason, error):
            gathered.failed[reason] += 1
            if gathered.failed.total() <= _FAILURES_TOLD_MAX:
                job.log(
                    "a file was not analysed",
                    level="warning",
                    path=reader.entries[place].name,
                    reason=reason,
                    **({"error": error} if error else {}),
                )


class _Progress:
    """Tells how many files were parsed, now and then."""

    def __init__(self, job: Job, total: int) -> None:
        self._job = job
        self._total = total
        self._done = 0
        self._tell()

    def one_more(self) -> None:
        self._done += 1
        if self._done == self._total or time.monotonic() - self._told_at >= _PROGRESS_SECONDS:
            self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        share = self._done / self._total if self._total else 1.0
        self._job.progress(PARSED * share, f"{self._done} of {self._total} files")


REST: Final = "rest.json"
"""The name of the file that the result is written to."""
DOMAINS: Final = "domains.json"
"""That of the file with its domains, for operations that have any: they may yet be renamed."""
_RESOLVED: Final = 0.85
_FOUND: Final = 0.95
"""How far it is when names are resolved, and domains found; ``PARSED`` is before that."""
FILE_WALL_SECONDS: Final = 80.0
_WITH_DOMAINS: Final = frozenset({"domain", "supermodel"})


class AnalysisOrder(msgspec.Struct, frozen=True):
    """What to do. ``archive`` is the name of a file in the handler's folder.

    ``parsers`` is a number of processes, one per core to use. ``niceness`` is how far their
    priority, and that of the analysis, is lowered. A file may take ``file_seconds`` of
    CPU time, and ``file_wall_seconds`` by the clock, its parser ``memory_mb``; source files of more
    than ``file_bytes_max`` are skipped.
    ``started_at`` is when the job's work began. The archive may have ``entries_max`` entries, and
    unpack to ``unpacked_mb_max``; ``sha256`` is its hash, for the result to tell.
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
    """What became of the calls."""

    resolved: int
    external: int
    unresolved: int


class AnalysisSummary(msgspec.Struct, frozen=True):
    """What the result holds, in figures; ``bytes`` is the size of its file."""

    nodes: int
    relationships: int
    files_processed: int
    files_failed: int
    files_skipped: int
    languages: tuple[str, ...]
    calls: CallSummary
    bytes: int


def analyse(job: Job, order: AnalysisOrder) -> AnalysisSummary:
    """Write what the operation shows of the archive to ``rest.json``; returns the figures of it."""
    try:
        return _analyse(job, order)
    except ArchiveRejected as refusal:
        job.fail(f"{refusal} ({refusal.reason})", code=refusal.code)
    except MemoryError:
        # A second attempt would need as much.
        job.fail("the graph needs more memory than an analysis may have", code="graph_too_large")
    except OSError as error:
        raise disk_unavailable("the graph", error) from error
    except JobSignal:
        raise
    except Exception as error:
        # What it says may quote names of the archive. Where it was raised is in the log.
        raise AnalysisBroken(type(error).__name__) from error


class AnalysisBroken(Exception):
    """A defect in the analysis; its text is the type of what was raised."""


def disk_unavailable(what: str, error: OSError) -> RetryLater:
    """What to raise if something could not be put on disk. No path is in it: callers see it."""
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return RetryLater(f"{what} could not be put on disk: {reason}", code="disk_unavailable")


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
        # By the clock that began: the two do not disagree about how long it took.
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
