"""Parser processes at work: they are given files, watched, and replaced when they die.

Every parser has a few pieces of work at hand, so that it need not wait for more. The first of them
is what it is at. If it dies, or takes longer than it may, that file has failed, a new parser takes
its place, and the rest goes on: only its own file is lost to a hostile one.
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

AT_HAND_MAX: Final = 4
"""Pieces of work that a parser has been given and not yet answered."""

LOOK_SECONDS: Final = 0.25
"""How long nothing may happen until the caller gets to look whether it should stop."""

_READ_BYTES: Final = 1024 * 1024
_DEATHS_BY_HUNGER: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT})
"""How the parsing library, which checks no allocation, ends a process that gets no more memory."""
_KIB: Final = 1024


class Done(NamedTuple):
    """A piece of work, and its answer."""

    work: parser_wire.Work
    answer: parser_wire.ParsedFiles | parser_wire.NotParsed


class Parser:
    """One process. ``at_hand`` is what it has to do, the first of it at this moment."""

    def __init__(self, reader: ArchiveReader, limits: ParserLimits) -> None:
        ours, theirs = socket.socketpair()
        self._hungry_at_bytes = resident_bytes() + limits.memory_mb * 1024 * _KIB // 2
        parent = os.getpid()
        # A signal between the fork and the parser's own handlers would be taken for ours.
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
        self.at_hand: deque[parser_wire.Work] = deque()
        self.since = time.monotonic()
        """When it began with the first piece of work at hand, or was heard of since."""

    def give(self, work: parser_wire.Work) -> None:
        if not self.at_hand:
            self.since = time.monotonic()
        self.at_hand.append(work)
        # Never waits: so little is under way that the socket has room for it. One that is dead is
        # noticed when its answers are read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(parser_wire.frame(work))

    def receive(self) -> bool:
        """Take in what it has sent. False if it is dead."""
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
        """What it has said of its work so far."""
        while (answer := parser_wire.take_answer(self._unread)) is not None:
            yield self.at_hand.popleft(), answer

    def end(self) -> parser_wire.NotParsed:
        """Kill it, if it still lives. Returns what that means for the file it was at."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        self.socket.close()
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if by == TOO_SLOW_SIGNAL:
            return parser_wire.NotParsed("timeout")
        # It does not say what it died of. One that had used up half of its memory and more most
        # likely asked for the other half.
        hungry = usage.ru_maxrss * _KIB > self._hungry_at_bytes
        if status >> 8 == OUT_OF_MEMORY_STATUS or (by in _DEATHS_BY_HUNGER and hungry):
            return parser_wire.NotParsed("memory")
        return parser_wire.NotParsed("crash")


class Parsers:
    """So many parsers on one archive. A context manager; at its end every process is dead."""

    def __init__(self, reader: ArchiveReader, number: int, limits: ParserLimits) -> None:
        self._reader = reader
        self._number = number
        self._limits = limits
        self._parsers: list[Parser] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Parsers:
        # What exists now is not looked at again: a look would copy its memory in each parser.
        gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        for parser in self._parsers:
            parser.end()
        self._selector.close()
        gc.unfreeze()

    def run(self, work: Sequence[parser_wire.Work]) -> Iterator[Done | None]:
        """Each piece of work with its answer, as they come; None when there is none for a while.

        Raises ArchiveRejected if a file's bytes are not what the archive promises.
        """
        waiting = deque(work)
        for _ in range(min(self._number, len(work))):
            self._add()
        while waiting or any(parser.at_hand for parser in self._parsers):
            self._hand_out(waiting)
            ready = self._selector.select(LOOK_SECONDS)
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

    def _hand_out(self, waiting: deque[parser_wire.Work]) -> None:
        """One by one in turn, so that all have something to do until the end."""
        for level in range(AT_HAND_MAX):
            for parser in self._parsers:
                if waiting and len(parser.at_hand) == level:
                    parser.give(waiting.popleft())

    def _answered(self, parser: Parser) -> Iterator[Done]:
        for work, answer in parser.responses():
            if isinstance(answer, parser_wire.ParserRefused):
                raise ArchiveRejected(answer.reason, answer.message)
            yield Done(work, answer)

    def _replace_overdue(self, waiting: deque[parser_wire.Work]) -> Iterator[Done]:
        oldest = time.monotonic() - self._limits.file_wall_seconds
        for parser in list(self._parsers):
            if not parser.at_hand or parser.since >= oldest:
                continue
            # What it is saying, or has said while nobody listened, counts.
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
        """End a parser. What it was at has failed; what it had yet to do is for others."""
        self._selector.unregister(parser.socket)
        self._parsers.remove(parser)
        ended = parser.end()
        if parser.at_hand:
            lost = parser.at_hand.popleft()
            waiting.extendleft(reversed(parser.at_hand))
            # Its bytes may not have been checked. They are few.
            self._reader.check(self._reader.entries[lost.place])
            yield Done(lost, why or ended)
        if waiting:
            self._add()
