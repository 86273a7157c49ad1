"""A file in a form (multipart/form-data, RFC 7578), handed on as it arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from coatcheck.domain.errors import BodyTooLarge, InvalidBody, InvalidParameter, WrongMediaType
from coatcheck.http.request import Call

MEDIA_TYPE: Final = "multipart/form-data"
_ENVELOPE_BYTES_MAX: Final = 64 * 1024
"""What a form may have around its file: boundaries and headers."""
_PART_HEADERS_MAX: Final = 16
_PART_HEADER_BYTES_MAX: Final = 8 * 1024


async def file_part(call: Call, name: str, bytes_max: int) -> AsyncIterator[bytes]:
    """The bytes of the one part of the form, which is named ``name``, piece by piece.

    Raises WrongMediaType, InvalidBody, InvalidParameter or BodyTooLarge: before the first piece
    where that can be told, else in the middle. A form with another part is refused: what nobody
    reads would be lost in silence.
    """
    form = _Form(_boundary(call, name), name)
    size = 0
    async for piece in call.pieces(bytes_max + _ENVELOPE_BYTES_MAX):
        for data in form.feed(piece):
            size += len(data)
            if size > bytes_max:
                raise BodyTooLarge(bytes_max)
            yield data
    form.check_whole()


def _boundary(call: Call, name: str) -> bytes:
    media_type, options = parse_options_header(call.headers.get(b"content-type", b""))
    if media_type != MEDIA_TYPE.encode():
        raise WrongMediaType(
            f"Send a form ({MEDIA_TYPE}) with the file as its part {name!r}, as `curl -F "
            f"{name}=@FILE` does."
        )
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise WrongMediaType("The Content-Type lacks the form's boundary.")
    return boundary


class _Form:
    """The state of a form that is being read."""

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
        """What the piece holds of the file."""
        self._data = []
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise InvalidBody("The body is not a well-formed form.") from error
        return self._data

    def check_whole(self) -> None:
        if not self._ended:
            raise InvalidBody("The form breaks off before its last boundary.")
        if self._parts == 0:
            raise InvalidParameter(self._name, "is missing", "body")

    # What the parser finds

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
            raise InvalidParameter(self._name, "came more than once", "body")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def _end(self) -> None:
        self._ended = True
