"""Encodes tasks: a few as a JSON array, many as NDJSON lines; files are read in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from coatcheck.encoding import encode

LISTED_TASKS_MAX: Final = 1_000
"""Fewer are sent as JSON in their request."""
BODY_BYTES_MAX: Final = 512 * 1024
"""Longer lists are uploaded first; the server accepts requests of up to 1 MiB."""

LIST_MEDIA_TYPE: Final = "application/x-ndjson"
PIECE_BYTES: Final = 1024 * 1024
"""How much of a list or of an export is in memory at a time."""


def line(task: Any) -> bytes:
    """A task as one line, without the line end.

    JSON has line ends only between tokens, so text over several lines, as a ``msgspec.Raw`` may be,
    can be joined without changing its meaning.
    """
    encoded = encode(task)
    if b"\n" in encoded or b"\r" in encoded:
        return encoded.replace(b"\r", b" ").replace(b"\n", b" ")
    return encoded


def some_lines(
    tasks: Iterator[Any], *, tasks_max: int | None, bytes_max: int
) -> tuple[list[bytes], bool]:
    """The next lines, until ``tasks_max`` or just over ``bytes_max``; and whether these are all."""
    lines: list[bytes] = []
    size = 0
    for task in tasks:
        lines.append(line(task))
        size += len(lines[-1]) + 1
        if len(lines) == tasks_max or size > bytes_max:
            return lines, False
    return lines, True


def listed(lines: list[bytes]) -> msgspec.Raw:
    """The tasks as one JSON array."""
    return msgspec.Raw(b"[" + b",".join(lines) + b"]")


Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")


async def in_a_thread(
    call: Callable[Parameters, ResultT], *arguments: Parameters.args, **options: Parameters.kwargs
) -> ResultT:
    """For the async client: run the call in a thread."""
    import asyncio  # a program with the sync client does not load it

    return await asyncio.to_thread(call, *arguments, **options)


def at_once(
    call: Callable[Parameters, ResultT], *arguments: Parameters.args, **options: Parameters.kwargs
) -> ResultT:
    """For the sync client: run the call directly."""
    return call(*arguments, **options)
