"""Splits a list of tasks (NDJSON) into lines and parses them; each line is valid or has an error.

A line is any JSON value, which is the task's input; or an object of exactly the two fields
``custom_id`` and ``input``. An object with other fields besides, or with only one of the two, is an
input like any other. Blank lines are skipped, but counted.

Parsing is most of the cost of an ingest, so it works on whole blocks of lines: checks that a block
passes are not made for its lines, and only suspicious lines are examined one by one.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from coatcheck.domain.limits import CUSTOM_ID_CHARACTERS_MAX, JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX
from coatcheck.products.batches.model import BadLine

_URL: Final = re.compile(r"https?://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^/?#:]*)", re.IGNORECASE)
_CHARACTERS_MAX: Final = 100


class RateKey:
    """Reads the rate key of tasks from the field at ``path``, with dots between nested names.

    >>> RateKey("page.url").of(b'{"page": {"url": "https://Example.org:8080/a"}}')
    'example.org'

    The key of an http or https URL is its host; of other text, the text. Without text at the path,
    the key is empty. A key of more than 100 characters is replaced by its SHA-256.
    """

    def __init__(self, path: str) -> None:
        names = path.split(".")
        self._depth = len(names)
        decoded_type: Any = Any
        for name in reversed(names):
            # Renamed, because a field of a task may have any name; all other fields are skipped.
            decoded_type = msgspec.defstruct(
                "Level", [("value", decoded_type, None)], rename={"value": name}, gc=False
            )
        self._decode = msgspec.json.Decoder(decoded_type).decode

    def of(self, given: bytes) -> str:
        """The rate key of a task's input."""
        try:
            value = self._decode(given)
        except msgspec.ValidationError:
            return ""  # no object where there should be one
        for _ in range(self._depth):
            if value is None:
                return ""
            value = value.value
        return _key(value) if isinstance(value, str) else ""


def _key(text: str) -> str:
    url = _URL.match(text)
    key = text if url is None else url[1].lower()
    if len(key) > _CHARACTERS_MAX:
        return hashlib.sha256(key.encode()).hexdigest()
    return key


LINE_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + 1024
"""A line may have a custom_id and the two names besides its input, whose length the parser checks.
"""
_BLOCK_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, or one that was too long to keep. ``size`` is their length in the stream."""

    data: bytes
    size: int
    is_too_long: bool = False


class LineSplitter:
    """Splits a stream, fed piece by piece from the beginning of a line, into blocks of lines.

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
        self._skipped = 0
        """How many bytes of a line that is too long were skipped."""

    @property
    def held(self) -> int:
        """How many bytes are kept until the end of their line arrives."""
        return len(self._held)

    def feed(self, piece: bytes) -> Iterator[Block]:
        """The blocks that this piece completes."""
        if self._skipped:
            end = piece.find(b"\n")
            if end < 0:
                self._skipped += len(piece)
                return
            yield Block(b"", self._skipped + end + 1, is_too_long=True)
            self._skipped = 0
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
            self._skipped = self._whole(len(self._held))
            self._held = b""

    def end(self) -> Iterator[Block]:
        """The last line at the end of the stream, if it has no newline."""
        if self._skipped:
            yield Block(b"", self._skipped, is_too_long=True)
        elif self._held or self._mark_size:
            yield Block(self._held, self._whole(len(self._held)))
        self._held = b""
        self._skipped = 0

    def _blocks(self, data: bytes) -> Generator[Block, None, int]:
        """Cut the data after newlines. Returns the offset of the rest."""
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
        """The size in the stream, including a byte order mark that was removed at its beginning."""
        size += self._mark_size
        self._mark_size = 0
        return size


Item = TypeVar("Item")


async def reading_ahead(source: AsyncIterator[Item]) -> AsyncGenerator[Item, None]:
    """The items of ``source``. While the caller works on one, the next is being read. Close it
    before the source."""
    reading = asyncio.ensure_future(anext(source, None))
    try:
        while (item := await reading) is not None:
            reading = asyncio.ensure_future(anext(source, None))
            yield item
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_BLANKS: Final = b" \t\r"
_NUL: Final = b"\\u0000"
# An escape only if its own backslash is not escaped: an even number of backslashes precedes it.
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_CUSTOM_ID: Final = b"custom_id"
_BEGINS_WITH_CUSTOM_ID: Final = b'{"custom_id"'
_ESCAPE: Final = b"\\u"
"""A field's name may contain escapes."""

_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}\n")
_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BRACES_TO_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_BRACKETS_MAX: Final = 2 * JSON_DEPTH_MAX
"""This few brackets cannot nest too deeply."""

_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_EXPONENT: Final = b"0e000"
_MANY_DIGITS: Final = b"0" * 200
"""A number without either is in range: with a two-digit exponent, a float allows 209 digits."""
_MSGSPEC_PREFIX: Final = "JSON is malformed: "

_check_syntax: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Checks only a value's syntax: not whether text is UTF-8, nor how large a number is."""
_decode: Final = msgspec.json.Decoder().decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _NamedField(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    custom_id: str
    input: msgspec.Raw


_named: Final = msgspec.json.Decoder(_NamedField).decode


class ParsedLines(NamedTuple):
    """The tasks and errors of some lines. ``inputs`` and ``custom_ids`` have the same length."""

    inputs: list[bytes]
    custom_ids: Sequence[str | None]
    bad: list[BadLine]
    lines: int


class _Bad(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse(block: bytes, first_line: int = 1, bytes_max: int = PAYLOAD_BYTES_MAX) -> ParsedLines:
    """Parse a block of whole lines, the first of which has the number ``first_line``.

    The last line may lack its newline. ``bytes_max`` limits the length of an input.
    """
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()  # the empty text after the last newline is not a line
    if b"\r" in block:
        lines = [line.strip(_BLANKS) for line in lines]
    suspects = _suspects(block, lines, bytes_max)
    may_be_named = _CUSTOM_ID in block or _ESCAPE in block
    if not suspects and not may_be_named:
        try:
            for _ in map(_check_syntax, lines):
                pass
        except (msgspec.DecodeError, RecursionError):
            pass  # one of them is invalid or blank
        else:
            return ParsedLines(lines, [None] * len(lines), [], len(lines))
    return _parse_each(lines, first_line, bytes_max, suspects, may_be_named)


def parse_list(data: bytes, bytes_max: int = PAYLOAD_BYTES_MAX) -> ParsedLines:
    """Parse a whole list."""
    return parse(data.removeprefix(BYTE_ORDER_MARK), 1, bytes_max)


def as_line(value: bytes) -> bytes:
    """A JSON value as one line of a list. JSON has no raw line breaks within strings."""
    return value.replace(b"\n", b" ").replace(b"\r", b" ")


def too_long(line: int, bytes_max: int = PAYLOAD_BYTES_MAX) -> BadLine:
    """The error of a line that is too long to be a task."""
    return BadLine(line, "line_too_long", f"a task has at most {bytes_max} bytes")


def _parse_each(
    lines: list[bytes], first_line: int, bytes_max: int, suspects: set[int], may_be_named: bool
) -> ParsedLines:
    inputs: list[bytes] = []
    custom_ids: list[str | None] = []
    bad: list[BadLine] = []
    for at, line in enumerate(lines):
        custom_id: str | None = None
        given: bytes = line
        try:
            if at in suspects:
                _check(line)
            if may_be_named and line.startswith(_BEGINS_WITH_CUSTOM_ID):
                custom_id, given = _split(line)
            else:
                _check_syntax(line)
                if may_be_named and (_CUSTOM_ID in line or _ESCAPE in line):
                    custom_id, given = _split(line)
            if len(given) > bytes_max:
                bad.append(too_long(first_line + at, bytes_max))
                continue
        except _Bad as error:
            bad.append(BadLine(first_line + at, error.code, str(error)))
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if line.strip(_BLANKS):
                bad.append(_bad_line(first_line + at, line))
            continue
        inputs.append(given)
        custom_ids.append(custom_id)
    return ParsedLines(inputs, custom_ids, bad, len(lines))


def _suspects(block: bytes, lines: list[bytes], bytes_max: int) -> set[int]:
    """The indexes of lines that may be invalid although their syntax is right."""
    found: set[int] = set()
    if not _is_utf8(block):
        found.update(at for at, line in enumerate(lines) if not line.isascii())
    if _NUL in block:
        found.update(at for at, line in enumerate(lines) if _NUL in line)
    brackets = block.translate(None, _NOT_BRACKETS)
    if len(brackets) > _BRACKETS_MAX:
        found.update(_longer(brackets.split(b"\n"), _BRACKETS_MAX))
    numbers = block.translate(_DIGITS_ALIKE, b"+-")
    if _LONG_EXPONENT in numbers or _MANY_DIGITS in numbers:
        found.update(
            at
            for at, line in enumerate(numbers.split(b"\n"))
            if _LONG_EXPONENT in line or _MANY_DIGITS in line
        )
    if len(block) > bytes_max:
        found.update(_longer(lines, bytes_max))
    return found


def _longer(lines: list[bytes], length: int) -> Iterator[int]:
    if max(map(len, lines), default=0) > length:
        yield from (at for at, line in enumerate(lines) if len(line) > length)


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _split(line: bytes) -> tuple[str | None, bytes]:
    """The custom id and the input of a line that has exactly these; else the line is the input."""
    try:
        named = _named(line)
        custom_id, given = named.custom_id, bytes(named.input)
    except msgspec.ValidationError:
        try:
            fields = _fields(line)
        except msgspec.ValidationError:
            return None, line  # not an object
        if fields.keys() != {"custom_id", "input"}:
            return None, line
        raise _Bad("invalid_custom_id", "custom_id: must be text") from None
    if not 1 <= len(custom_id) <= CUSTOM_ID_CHARACTERS_MAX:
        raise _Bad(
            "invalid_custom_id", f"custom_id: must have 1 to {CUSTOM_ID_CHARACTERS_MAX} characters"
        )
    return custom_id, given


def _bad_line(number: int, line: bytes) -> BadLine:
    try:
        _check(line)
    except _Bad as error:
        return BadLine(number, error.code, str(error))
    # This is not known to happen. The line is invalid all the same.
    return BadLine(number, "not_json", "not JSON")


def _check(line: bytes) -> None:
    """Raise _Bad if a line is invalid. The message never quotes the line."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise _Bad("not_utf8", f"not UTF-8 text, at byte {error.start}") from None
    try:
        _decode(line)
    except msgspec.ValidationError:
        raise _Bad("number_out_of_range", "a number is out of range") from None
    except msgspec.DecodeError as error:
        if not line.strip(_BLANKS):
            return
        problem = str(error).removeprefix(_MSGSPEC_PREFIX)
        has_position = problem != str(error)
        raise _Bad(
            "not_json", f"not JSON: {problem if has_position else 'it ends too early'}"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    if _depth_is_over(line):
        raise _too_deep()
    if _NUL in line and _ESCAPED_NUL.search(line):
        raise _Bad("nul_character", "text has a NUL character")


def _too_deep() -> _Bad:
    return _Bad("too_deep", f"nests more than {JSON_DEPTH_MAX} levels deep")


def _depth_is_over(line: bytes) -> bool:
    """Whether valid JSON nests deeper than the bound."""
    if line.count(b"[") + line.count(b"{") <= JSON_DEPTH_MAX:
        return False
    quotes_only_around_strings = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(quotes_only_around_strings.split(b'"')[::2])
    brackets = outside_strings.translate(_BRACES_TO_BRACKETS, _NO_BRACKET)
    for _ in range(JSON_DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # removes every innermost pair: one level less
    return bool(brackets)
