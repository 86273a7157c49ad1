"""Cuts a stream of bytes into blocks of whole lines, holding no more than a line of it.

A block says how many bytes of the stream it is, so that whoever takes it in can go on after it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.products.batches.lines import BYTE_ORDER_MARK

LINE_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + 1024
"""A line also has a custom_id, and the two names. Which input is too long, the parser says."""
_BLOCK_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, or one that was too long to be held. ``size`` is what they are of the stream."""

    data: bytes
    size: int
    is_too_long: bool = False


class LineSplitter:
    """Fed with a stream piece by piece, from the beginning of a line on.

    >>> splitter = LineSplitter(at_start=True)
    >>> [block.data for block in splitter.feed(b'1\\n2\\n3')]
    [b'1\\n2\\n']
    >>> [block.data for block in splitter.end()]
    [b'3']
    """

    def __init__(self, *, at_start: bool) -> None:
        self._may_have_mark = at_start
        self._held = b""
        self._mark_size = 0
        self._passed_over = 0
        """How much of a line that is too long has gone by."""

    @property
    def held(self) -> int:
        """How many bytes wait for the end of their line."""
        return len(self._held)

    def feed(self, piece: bytes) -> Iterator[Block]:
        """The blocks that are whole with this piece."""
        if self._passed_over:
            end = piece.find(b"\n")
            if end < 0:
                self._passed_over += len(piece)
                return
            yield Block(b"", self._passed_over + end + 1, is_too_long=True)
            self._passed_over = 0
            piece = piece[end + 1 :]
        data = self._held + piece if self._held else piece
        if self._may_have_mark:
            if len(data) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(data):
                self._held = data
                return
            self._may_have_mark = False
            if data.startswith(BYTE_ORDER_MARK):
                data = data[len(BYTE_ORDER_MARK) :]
                self._mark_size = len(BYTE_ORDER_MARK)
        at = yield from self._blocks(data)
        self._held = data[at:] if at else data
        if len(self._held) > LINE_BYTES_MAX:
            self._passed_over = self._whole(len(self._held))
            self._held = b""

    def end(self) -> Iterator[Block]:
        """What is left when the stream has ended: a last line without its newline."""
        if self._passed_over:
            yield Block(b"", self._passed_over, is_too_long=True)
        elif self._held or self._mark_size:
            yield Block(self._held, self._whole(len(self._held)))
        self._held = b""
        self._passed_over = 0

    def _blocks(self, data: bytes) -> Generator[Block, None, int]:
        """Cut after newlines. Returns how far that went."""
        at = 0
        while True:
            end = data.rfind(b"\n", at, at + _BLOCK_BYTES)
            if end < 0:
                end = data.find(b"\n", at + _BLOCK_BYTES)  # a long line
            if end < 0:
                return at
            size = end + 1 - at
            too_long = size > LINE_BYTES_MAX + 1 and data.find(b"\n", at, end) < 0
            yield Block(
                b"" if too_long else data[at : end + 1], self._whole(size), is_too_long=too_long
            )
            at = end + 1

    def _whole(self, size: int) -> int:
        """The size in the stream, with the mark that was left out at its beginning."""
        size += self._mark_size
        self._mark_size = 0
        return size
