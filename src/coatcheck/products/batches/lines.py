"""Lines of a list, read as tasks: each alone is good or bad, and says why.

A line is any JSON value, which is the task's input; or an object of exactly the two fields
``custom_id`` and ``input``. An object that has others besides, or only one of the two, is an input
like any other. Blank lines are passed over, but counted.

It is what taking a list in costs, so it is written for whole blocks of lines: what can be ruled out
for a block is not asked of its lines, and only lines that look suspicious are looked into.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from coatcheck.domain.limits import CUSTOM_ID_CHARACTERS_MAX, JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX
from coatcheck.products.batches.model import BadLine

_URL: Final = re.compile(r"https?://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^/?#:]*)", re.IGNORECASE)
_CHARACTERS_MAX: Final = 100


class RateKey:
    """Reads the key of tasks from the field at ``path``, whose names are parted by dots.

    >>> RateKey("page.url").of(b'{"page": {"url": "https://Example.org:8080/a"}}')
    'example.org'

    Of an http or https URL it is the host; of other text, the text. Where there is no text at the
    path it is empty. One of more than 100 characters is told by its SHA-256.
    """

    def __init__(self, path: str) -> None:
        names = path.split(".")
        self._depth = len(names)
        wanted: Any = Any
        for name in reversed(names):
            # Named so that any text will do for a field, and read by no other field than this.
            wanted = msgspec.defstruct(
                "Level", [("value", wanted, None)], rename={"value": name}, gc=False
            )
        self._decode = msgspec.json.Decoder(wanted).decode

    def of(self, given: bytes) -> str:
        """The key of a task, from its input."""
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


Item = TypeVar("Item")


@asynccontextmanager
async def reading_ahead(source: AsyncIterator[Item]) -> AsyncIterator[AsyncIterator[Item]]:
    """The items of ``source``, the next of which is being read while the last is worked on.

    An error of the source's is raised where its item would have come.
    """
    waiting: asyncio.Queue[Item | _End] = asyncio.Queue(maxsize=1)

    async def read() -> None:
        try:
            async for item in source:
                await waiting.put(item)
        except Exception as error:  # noqa: BLE001 - raised by whoever takes from it
            await waiting.put(_End(error))
        else:
            await waiting.put(_End(None))

    async def taken() -> AsyncIterator[Item]:
        while True:
            item = await waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    reader = asyncio.create_task(read(), name="reading ahead")
    try:
        yield taken()
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_BLANKS: Final = b" \t\r"
_NUL: Final = b"\\u0000"
# An escape only if its own backslash is not escaped: an even number of them goes before.
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_CUSTOM_ID: Final = b"custom_id"
_BEGINS_WITH_CUSTOM_ID: Final = b'{"custom_id"'
_ESCAPE: Final = b"\\u"
"""A field's name may be spelt with these."""

_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}\n")
_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BRACES_TO_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_BRACKETS_MAX: Final = 2 * JSON_DEPTH_MAX
"""So few cannot nest too deeply, wherever they are."""

_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_EXPONENT: Final = b"0e000"
_MANY_DIGITS: Final = b"0" * 200
"""A number without either is in range: with two digits of exponent a float has room for 209."""
_MSGSPEC_PREFIX: Final = "JSON is malformed: "

_skim: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Reads a value's shape and nothing more: not whether text is UTF-8, not how large a number is."""
_decode: Final = msgspec.json.Decoder().decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _NamedField(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    custom_id: str
    input: msgspec.Raw


_named: Final = msgspec.json.Decoder(_NamedField).decode


class ParsedLines(NamedTuple):
    """What some lines came to. ``inputs`` and ``custom_ids`` go together."""

    inputs: list[bytes]
    custom_ids: Sequence[str | None]
    bad: list[BadLine]
    lines: int


class _Bad(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse(block: bytes, first_line: int = 1, bytes_max: int = PAYLOAD_BYTES_MAX) -> ParsedLines:
    """The tasks of a block of whole lines, the first of which is numbered ``first_line``.

    The last line may be without its newline. ``bytes_max`` is what an input may have.
    """
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()  # what follows the last newline is no line
    if b"\r" in block:
        lines = [line.strip(_BLANKS) for line in lines]
    suspects = _suspects(block, lines, bytes_max)
    may_be_named = _CUSTOM_ID in block or _ESCAPE in block
    if not suspects and not may_be_named:
        try:
            for _ in map(_skim, lines):
                pass
        except (msgspec.DecodeError, RecursionError):
            pass  # one of them is bad, or blank
        else:
            return ParsedLines(lines, [None] * len(lines), [], len(lines))
    return _one_by_one(lines, first_line, bytes_max, suspects, may_be_named)


def parse_list(data: bytes, bytes_max: int = PAYLOAD_BYTES_MAX) -> ParsedLines:
    """The tasks of a whole list that is in memory."""
    return parse(data.removeprefix(BYTE_ORDER_MARK), 1, bytes_max)


def as_line(value: bytes) -> bytes:
    """A JSON value as one line of a list. Within text JSON has no line breaks of its own."""
    return value.replace(b"\n", b" ").replace(b"\r", b" ")


def too_long(line: int, bytes_max: int = PAYLOAD_BYTES_MAX) -> BadLine:
    """What is said of a line that is too long to be a task."""
    return BadLine(line, "line_too_long", f"a task has at most {bytes_max} bytes")


def _one_by_one(
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
                _skim(line)
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
    """The lines that may be bad although their shape is right."""
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
    """The two parts of a line that has exactly these; else the line is the input."""
    try:
        named = _named(line)
        custom_id, given = named.custom_id, bytes(named.input)
    except msgspec.ValidationError:
        try:
            fields = _fields(line)
        except msgspec.ValidationError:
            return None, line  # no object
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
    # What it is about is not known to happen; the line is bad all the same.
    return BadLine(number, "not_json", "not JSON")


def _check(line: bytes) -> None:
    """Raises _Bad with what is wrong with a line. Its text never quotes the line."""
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
        told_where = problem != str(error)
        raise _Bad(
            "not_json", f"not JSON: {problem if told_where else 'it ends too early'}"
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
        brackets = brackets.replace(b"[]", b"")  # every innermost one: the depth falls by one
    return bool(brackets)
