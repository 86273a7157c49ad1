"""A parser's process: reads files in place from the archive, and reports what they declare.

It is forked, so that the grammars are loaded once. It keeps next to nothing of its parent: it has
no descriptor but the archive and its socket, can write to no file, and has limits on memory and on
the CPU time of each file. The kernel kills it when its parent dies and when a file takes too long.
Its output is discarded.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec

from coatcheck.archives import ArchiveReader
from coatcheck.domain.errors import ArchiveRejected
from coatcheck.products.graphs import parser_wire
from coatcheck_codegraph.languages import language_of, load

TOO_SLOW_SIGNAL: Final = signal.SIGPROF
"""The signal that ends a process which used up the CPU time for one file."""

OUT_OF_MEMORY_STATUS: Final = 88
"""The exit status of a process that has no memory left to send an answer."""

_PR_SET_PDEATHSIG: Final = 1
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """The limits of one parser process.

    ``file_seconds`` are CPU time, so that no file fails because the machine is busy. But a process
    may also be stopped, or wait for a disk: after ``file_wall_seconds`` by the clock it is killed.
    ``memory_mb`` is address space on top of what the process has when it is forked.
    """

    file_seconds: float
    file_wall_seconds: float
    file_bytes_max: int
    memory_mb: int


def run(
    reader: ArchiveReader,
    connection: socket.socket,
    parent: int,
    limits: ParserLimits,
) -> NoReturn:
    """Parse until there is no more work. Call it in the process that was just forked."""
    status = 1
    try:
        _confine(reader, connection, parent, limits)
        _serve(reader, connection, limits)
        status = 0
    except MemoryError:
        status = OUT_OF_MEMORY_STATUS
    finally:
        # In every case: never return into the code that forked, and run no exit hooks.
        os._exit(status)


def _confine(
    reader: ArchiveReader,
    connection: socket.socket,
    parent: int,
    limits: ParserLimits,
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, TOO_SLOW_SIGNAL):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _die_with(parent)
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, _STDIN)
    os.dup2(devnull, _STDOUT)
    os.dup2(devnull, _STDERR)
    _close_all_but({_STDIN, _STDOUT, _STDERR, connection.fileno(), reader.descriptor})
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_AS, _address_space_bytes() + limits.memory_mb * _MIB)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)  # the parent died before prctl took effect


def _close_all_but(kept: set[int]) -> None:
    begin = 0
    for descriptor in sorted(kept):
        if begin < descriptor:  # an empty range would close all descriptors
            os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _address_space_bytes() -> int:
    """The address space that this process uses."""
    return _pages(0) * resource.getpagesize()


def resident_bytes() -> int:
    """The memory that this process has resident."""
    return _pages(1) * resource.getpagesize()


def _pages(field: int) -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[field])
    except FileNotFoundError:
        return 0  # not on Linux


def _lower(kind: int, limit: int) -> None:
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        limit = min(limit, highest)
    resource.setrlimit(kind, (limit, limit))


def _serve(reader: ArchiveReader, connection: socket.socket, limits: ParserLimits) -> None:
    with connection.makefile("rb") as frames:
        while (work := _next(frames)) is not None:
            connection.sendall(parser_wire.frame(_answer(reader, work, limits)))


def _next(frames: BinaryIO) -> parser_wire.Work | None:
    header = frames.read(parser_wire.LENGTH_BYTES)
    if len(header) < parser_wire.LENGTH_BYTES:
        return None
    return parser_wire.read_work(frames.read(int.from_bytes(header)))


def _answer(
    reader: ArchiveReader, work: parser_wire.Work, limits: ParserLimits
) -> parser_wire.Answer:
    try:
        return _parsed(reader, work.place, limits)
    except ArchiveRejected as refusal:
        return parser_wire.ParserRefused(refusal.reason, str(refusal))


def _parsed(reader: ArchiveReader, place: int, limits: ParserLimits) -> parser_wire.Answer:
    entry = reader.entries[place]
    language = language_of(entry.name)
    if language is None:
        raise ValueError("the file's language is not supported")
    signal.setitimer(signal.ITIMER_PROF, limits.file_seconds)
    try:
        source = reader.read(entry, limits.file_bytes_max)
        if source is None:
            return parser_wire.NotParsed("memory")
        facts = msgspec.msgpack.encode(load(language).extract(entry.name, source))
    except ArchiveRejected:
        raise
    except MemoryError:
        return parser_wire.NotParsed("memory")
    except Exception as error:  # noqa: BLE001 - a file that cannot be parsed fails alone
        return parser_wire.NotParsed("error", type(error).__name__)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if len(facts) > parser_wire.FACTS_BYTES_MAX:
        return parser_wire.NotParsed("memory")
    return parser_wire.ParsedFiles(msgspec.Raw(facts))
