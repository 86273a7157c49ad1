"""Which part of a representation a GET asks for, and whether it has it already (RFC 9110)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_DIGITS_MAX: Final = 18
_RANGE: Final = re.compile(
    rf"bytes\s*=\s*(?P<first>\d{{0,{_DIGITS_MAX}}})-(?P<last>\d{{0,{_DIGITS_MAX}}})", re.IGNORECASE
)
_ETAG: Final = re.compile(r'(?:W/)?"([^"]*)"')


class Unsatisfiable(Exception):
    """The range begins after the end."""


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from ``start`` to before ``stop`` of ``size``."""

    start: int
    stop: int
    size: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"


def requested_span(range_header: str | None, size: int) -> Span | None:
    """What a Range asks for; None for all of it. Raises Unsatisfiable.

    Several ranges at once, and what is not a range of bytes, are passed over, as a server may: the
    answer is the whole.
    """
    asked = None if range_header is None else _RANGE.fullmatch(range_header.strip())
    if asked is None:
        return None
    first, last = asked["first"], asked["last"]
    if first:
        start, stop = int(first), int(last) + 1 if last else size
        if last and stop <= start:
            return None  # it ends before it begins: no range
    elif last:
        start, stop = size - min(int(last), size), size
    else:
        return None
    if start >= size:
        raise Unsatisfiable
    return Span(start, min(stop, size), size)


def names_etag(header: str | None, etag: str) -> bool:
    """Whether an If-None-Match names ``etag`` (without its quotes), or any."""
    if header is None:
        return False
    return header.strip() == "*" or etag in _ETAG.findall(header)


def still_the_same(if_range: str | None, etag: str) -> bool:
    """Whether a range may be given of what is there now: not if its start is of something else."""
    return if_range is None or if_range.strip() == f'"{etag}"'
