"""A pool of parser processes: assigns files to them, watches them, and replaces those that die.

Every parser has a few files assigned, so that it need not wait for the next; it works on the first
of them. If the parser dies or takes too long, that file has failed, a new parser replaces it, and
the other files are parsed as before: a hostile file costs nothing but itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from coatcheck.archives import ArchiveReader
from coatcheck.domain.errors import ArchiveRejected
from coatcheck.products.graphs import parser_process, parser_wire
from coatcheck.products.graphs.parser_process import (
    OUT_OF_MEMORY_STATUS,
    TOO_SLOW_SIGNAL,
    ParserLimits,
    resident_bytes,
)

ASSIGNED_MAX: Final = 4
"""Files that a parser has been assigned and not yet answered."""

POLL_SECONDS: Final = 0.25
"""How long to wait for answers until the caller can check whether it should stop."""

_READ_BYTES: Final = 1024 * 1024
_OUT_OF_MEMORY_SIGNALS: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT})
"""What kills a process without memory: the parsing library does not check its allocations."""
_KIB: Final = 1024


class Done(NamedTuple):
    """A file and its answer."""

    work: parser_wire.Work
    answer: parser_wire.ParsedFiles | parser_wire.NotParsed


class Parser:
    """One process. ``assigned`` are the files to parse; it works on the first."""

    def __init__(self, reader: ArchiveReader, limits: ParserLimits) -> None:
        ours, theirs = socket.socketpair()
        self._half_used_bytes = resident_bytes() + limits.memory_mb * 1024 * _KIB // 2
        parent = os.getpid()
        # Between the fork and the parser's own handlers, a signal would run our handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        try:
            self.pid = os.fork()
            if self.pid == 0:
                parser_process.run(reader, theirs, parent, limits)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.socket = ours
        self._unread = bytearray()
        self.assigned: deque[parser_wire.Work] = deque()
        self.since = time.monotonic()
        """When it began with the first assigned file, or when it last sent something."""

    def give(self, work: parser_wire.Work) -> None:
        if not self.assigned:
            self.since = time.monotonic()
        self.assigned.append(work)
        # This never blocks: so little is unanswered that the socket's buffer has room for it.
        # A dead parser is noticed when its answers are read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(parser_wire.frame(work))

    def receive(self) -> bool:
        """Receive what the process has sent. False if it is dead."""
        try:
            data = self.socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if not data:
            return False
        self._unread += data
        self.since = time.monotonic()
        return True

    def responses(self) -> Iterator[tuple[parser_wire.Work, parser_wire.Answer]]:
        """The complete answers received so far, each with its file."""
        while (answer := parser_wire.take_answer(self._unread)) is not None:
            yield self.assigned.popleft(), answer

    def end(self) -> parser_wire.NotParsed:
        """Kill the process, if it is alive. Returns the answer for the file it was working on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        self.socket.close()
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if by == TOO_SLOW_SIGNAL:
            return parser_wire.NotParsed("timeout")
        # The signal alone does not prove a lack of memory. A process that had used more than half
        # of its limit most likely asked for the rest.
        used_most = usage.ru_maxrss * _KIB > self._half_used_bytes
        if status >> 8 == OUT_OF_MEMORY_STATUS or (by in _OUT_OF_MEMORY_SIGNALS and used_most):
            return parser_wire.NotParsed("memory")
        return parser_wire.NotParsed("crash")


class ParserPool:
    """The parsers of one archive. A context manager; at its end every process is dead."""

    def __init__(self, reader: ArchiveReader, number: int, limits: ParserLimits) -> None:
        self._reader = reader
        self._number = number
        self._limits = limits
        self._parsers: list[Parser] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> ParserPool:
        # The garbage collector writes to every object it visits, which would copy the memory of
        # existing objects into each parser. Freezing exempts them.
        gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        for parser in self._parsers:
            parser.end()
        self._selector.close()
        gc.unfreeze()

    def run(self, work: Sequence[parser_wire.Work]) -> Iterator[Done | None]:
        """Each file with its answer, as they come; None when there is none for a while.

        Raises ArchiveRejected if a file's bytes do not match the archive's directory.
        """
        waiting = deque(work)
        for _ in range(min(self._number, len(work))):
            self._add()
        while waiting or any(parser.assigned for parser in self._parsers):
            self._assign(waiting)
            ready = self._selector.select(POLL_SECONDS)
            if not ready:
                yield None
            for key, _ in ready:
                parser: Parser = key.data
                alive = parser.receive()
                yield from self._answered(parser)
                if not alive:
                    yield from self._replace(parser, waiting)
            yield from self._replace_overdue(waiting)

    def _add(self) -> None:
        parser = Parser(self._reader, self._limits)
        self._parsers.append(parser)
        self._selector.register(parser.socket, selectors.EVENT_READ, parser)

    def _assign(self, waiting: deque[parser_wire.Work]) -> None:
        """Assign files one by one in turn, so that all parsers are busy until the end."""
        for level in range(ASSIGNED_MAX):
            for parser in self._parsers:
                if waiting and len(parser.assigned) == level:
                    parser.give(waiting.popleft())

    def _answered(self, parser: Parser) -> Iterator[Done]:
        for work, answer in parser.responses():
            if isinstance(answer, parser_wire.ParserRefused):
                raise ArchiveRejected(answer.reason, answer.message)
            yield Done(work, answer)

    def _replace_overdue(self, waiting: deque[parser_wire.Work]) -> Iterator[Done]:
        oldest = time.monotonic() - self._limits.file_wall_seconds
        for parser in list(self._parsers):
            if not parser.assigned or parser.since >= oldest:
                continue
            # An answer that is arriving now, or was not read yet, counts.
            alive = parser.receive()
            yield from self._answered(parser)
            if not alive:
                yield from self._replace(parser, waiting)
            elif parser.since < oldest:
                yield from self._replace(parser, waiting, parser_wire.NotParsed("timeout"))

    def _replace(
        self,
        parser: Parser,
        waiting: deque[parser_wire.Work],
        why: parser_wire.NotParsed | None = None,
    ) -> Iterator[Done]:
        """End a parser. The file it was working on has failed; others get its remaining files."""
        self._selector.unregister(parser.socket)
        self._parsers.remove(parser)
        ended = parser.end()
        if parser.assigned:
            lost = parser.assigned.popleft()
            waiting.extendleft(reversed(parser.assigned))
            # The parser may not have checked the file's bytes. They are few.
            self._reader.check(self._reader.entries[lost.place])
            yield Done(lost, why or ended)
        if waiting:
            self._add()
