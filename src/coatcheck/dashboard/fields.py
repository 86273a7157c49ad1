"""Fields of a form or query string, whose names may repeat or be missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl

from coatcheck.domain.errors import InvalidBody, InvalidParameter, WrongMediaType
from coatcheck.http.request import Request

FORM_BYTES_MAX: Final = 256 * 1024
_FIELDS_MAX: Final = 1_000
_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


class Fields:
    """The non-empty fields, with surrounding white space removed."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        stripped = [(name, value.strip()) for name, value in pairs]
        self.pairs = [(name, value) for name, value in stripped if value]

    def get(self, name: str, default: str = "") -> str:
        """The last value with this name."""
        return next((value for each, value in reversed(self.pairs) if each == name), default)

    def all(self, name: str) -> list[str]:
        """All values with this name, for example of checkboxes."""
        return [value for each, value in self.pairs if each == name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


def read_query(request: Request) -> Fields:
    """Parse the query string. Raises InvalidParameter."""
    try:
        return Fields(_parse(request.scope["query_string"]))
    except ValueError:
        raise InvalidParameter("query", "must be UTF-8 text") from None


async def read_form(request: Request, bytes_max: int = FORM_BYTES_MAX) -> Fields:
    """Parse a submitted form. Raises WrongMediaType, InvalidBody, BodyTooLarge."""
    media_type = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    body = await request.body(bytes_max)
    if body and media_type != _MEDIA_TYPE:
        raise WrongMediaType(f"Send forms as {_MEDIA_TYPE}.")
    try:
        return Fields(_parse(body))
    except ValueError:
        raise InvalidBody("The form is not valid UTF-8 text.") from None


def _parse(raw: bytes) -> list[tuple[str, str]]:
    return parse_qsl(
        raw.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"
    )
