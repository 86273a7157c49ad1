"""Parses request bodies: JSON within bounds, JSON into a type, and a file in a form."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from coatcheck.domain.errors import (
    BodyTooLarge,
    FieldIssue,
    InvalidBody,
    InvalidInput,
    InvalidParameter,
    WrongMediaType,
)
from coatcheck.domain.limits import JSON_DEPTH_MAX
from coatcheck.http.request import Request

_decode: Final = msgspec.json.Decoder().decode

_NUL: Final = b"\\u0000"
# An escape only if its own backslash is not escaped: an even number of them goes before.
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u0000)")
_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BRACES_TO_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE: Final = re.compile(_HIGH + b"(?!" + _LOW + b")|(?<!" + _HIGH + b")" + _LOW)
_MSGSPEC_PREFIX: Final = "JSON is malformed: "


def read_json(data: bytes) -> Any:
    """Parse JSON. Raises InvalidBody, which says what is wrong and where, and never quotes the
    body."""
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidBody(_what_is_wrong(data, error)) from None
    except RecursionError:
        raise _too_deep() from None
    # Both checks search the text, because that is cheap: few brackets cannot nest deeply.
    if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX and _depth_is_over(data):
        raise _too_deep()
    if _NUL in data:
        found = _ESCAPED_NUL.search(data)
        if found is not None:
            raise InvalidBody(f"The body has a NUL character, at byte {found.start(1)}.")
    return value


def check_content_type(request: Request, otherwise: str = "") -> None:
    """Raise WrongMediaType unless the Content-Type is JSON in UTF-8, or missing.

    ``otherwise`` is a hint for callers of a route that also takes bodies of another type.
    """
    given = request.headers.get(b"content-type")
    if given is None or given == b"application/json":
        return
    media_type, *parameters = (part.strip() for part in given.decode("latin-1").lower().split(";"))
    if media_type != "application/json" and not media_type.endswith("+json"):
        needed = "The body must be JSON, with the header `Content-Type: application/json`"
        raise WrongMediaType(f"{needed}; {otherwise}." if otherwise else f"{needed}.")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            raise WrongMediaType("The body must be JSON in UTF-8.")


def _depth_is_over(data: bytes) -> bool:
    """Whether valid JSON nests deeper than the bound."""
    quotes_only_around_strings = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(quotes_only_around_strings.split(b'"')[::2])
    brackets = outside_strings.translate(_BRACES_TO_BRACKETS, _NO_BRACKET)
    for _ in range(JSON_DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # every innermost one: the depth falls by one
    return bool(brackets)


def _too_deep() -> InvalidBody:
    return InvalidBody(f"The body nests more than {JSON_DEPTH_MAX} levels deep.")


def _what_is_wrong(data: bytes, error: msgspec.DecodeError | UnicodeDecodeError) -> str:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as not_utf8:
        return f"The body is not UTF-8 text, at byte {not_utf8.start}."
    if isinstance(error, msgspec.ValidationError):
        return "The body has a number that is out of range."
    problem = str(error).removeprefix(_MSGSPEC_PREFIX)
    if problem == str(error) or "surrogate" in problem:  # msgspec did not say where
        lone = _LONE_SURROGATE.search(data)
        if lone is not None:
            return f"The body has half of a surrogate pair, at byte {lone.start()}."
        return "The body is not JSON: it ends too early."
    return f"The body is not JSON: {problem}."


Body = TypeVar("Body", bound=msgspec.Struct)

_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_WHOLE: Final = "body"
_UNKNOWN: Final = re.compile(r"^[Oo]bject contains unknown field `(.*)`$", re.DOTALL)


async def read_body(request: Request, kind: type[Body], bytes_max: int) -> Body:
    """The body as ``kind``.

    Raises InvalidBody if it is not JSON, InvalidParameter for an unknown field (which would be
    silently lost), and InvalidInput for a field with a wrong value.
    """
    data = await request.body(bytes_max)
    if not data:
        raise InvalidBody("A JSON body is needed.")
    check_content_type(request)
    value = read_json(data)
    return _fitted(lambda: msgspec.convert(value, kind))


async def read_optional_body(request: Request, kind: type[Body], bytes_max: int) -> Body:
    """The body as ``kind``, or ``kind`` with its defaults if there is no body."""
    if not await request.body(bytes_max):
        return kind()
    return await read_body(request, kind, bytes_max)


def read_as_written(data: bytes, kind: type[Body]) -> Body:
    """JSON as ``kind``, whose fields of type Raw keep the original bytes. Raises as
    ``read_body``."""
    if not data:
        raise InvalidBody("A JSON body is needed.")
    read_json(data)
    return _fitted(lambda: msgspec.json.decode(data, type=kind))


def _fitted(convert: Callable[[], Body]) -> Body:
    try:
        return convert()
    except msgspec.ValidationError as error:
        issue = _issue(str(error))
        unknown = _UNKNOWN.match(issue.issue)
        if unknown is not None:
            within = "" if issue.field == _WHOLE else f"{issue.field}."
            raise InvalidParameter(f"{within}{unknown[1]}", "is not a field", "body") from None
        raise InvalidInput([issue]) from None


def _issue(text: str) -> FieldIssue:
    found = _PLACE.match(text)
    assert found is not None, "the pattern takes any text"
    issue, place = found.groups()
    return FieldIssue((place or "").lstrip(".") or _WHOLE, issue[:1].lower() + issue[1:])


MEDIA_TYPE: Final = "multipart/form-data"
_ENVELOPE_BYTES_MAX: Final = 64 * 1024
"""The bytes of a form that are not the file: boundaries and headers."""
_PART_HEADERS_MAX: Final = 16
_PART_HEADER_BYTES_MAX: Final = 8 * 1024


async def file_part(request: Request, name: str, bytes_max: int) -> AsyncIterator[bytes]:
    """The bytes of the form's only part, which must be named ``name``, piece by piece.

    Raises WrongMediaType, InvalidBody, InvalidParameter or BodyTooLarge: before the first piece if
    possible, else between two pieces. A form with another part is refused: that part would be
    silently lost.
    """
    form = _Form(_boundary(request, name), name)
    size = 0
    async for piece in request.pieces(bytes_max + _ENVELOPE_BYTES_MAX):
        for data in form.feed(piece):
            size += len(data)
            if size > bytes_max:
                raise BodyTooLarge(bytes_max)
            yield data
    form.check_whole()


def _boundary(request: Request, name: str) -> bytes:
    media_type, options = parse_options_header(request.headers.get(b"content-type", b""))
    if media_type != MEDIA_TYPE.encode():
        raise WrongMediaType(
            f"Send a form ({MEDIA_TYPE}) with the file as its part {name!r}, as `curl -F "
            f"{name}=@FILE` does."
        )
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise WrongMediaType("The Content-Type has no boundary parameter.")
    return boundary


class _Form:
    """The state of a form that is being parsed."""

    def __init__(self, boundary: bytes, name: str) -> None:
        self._name = name
        self._data: list[bytes] = []
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._parts = 0
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._add_to_header_name,
                    "on_header_value": self._add_to_header_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._check_part,
                    "on_part_data": self._add_data,
                    "on_end": self._end,
                },
                max_header_count=_PART_HEADERS_MAX,
                max_header_size=_PART_HEADER_BYTES_MAX,
            )
        except FormParserError as error:
            raise InvalidBody("The form's boundary is not valid.") from error

    def feed(self, piece: bytes) -> list[bytes]:
        """Parse a piece of the form; returns the file's bytes in it."""
        self._data = []
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise InvalidBody("The body is not a well-formed form.") from error
        return self._data

    def check_whole(self) -> None:
        if not self._ended:
            raise InvalidBody("The form ends before its last boundary.")
        if self._parts == 0:
            raise InvalidParameter(self._name, "is missing", "body")

    # Callbacks of the parser

    def _begin_part(self) -> None:
        self._parts += 1
        self._disposition = b""

    def _add_to_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_to_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if bytes(self._header_name).lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _check_part(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name != self._name:
            raise InvalidParameter(
                name[:100] or "(nameless)", f"is not expected; send one part {self._name}", "body"
            )
        if self._parts > 1:
            raise InvalidParameter(self._name, "occurs more than once", "body")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def _end(self) -> None:
        self._ended = True
