"""Gathers the facts of an archive's files from its parsers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from coatcheck.archives import ArchiveReader, Entry
from coatcheck.job import Job
from coatcheck.products.graphs.members import sorted_out
from coatcheck.products.graphs.parser_process import ParserLimits
from coatcheck.products.graphs.parser_wire import NotParsed, Parsed
from coatcheck.products.graphs.parsers import Done, Parsers
from coatcheck.products.graphs.work_units import pieces_of_work
from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages import language_of, load

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
        case Parsed(facts):
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
