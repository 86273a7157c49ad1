"""The fields of a form or of a query: names that may come several times, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl

from coatcheck.control.call import Call
from coatcheck.domain.errors import InvalidBody, InvalidParameter, WrongMediaType

FORM_BYTES_MAX: Final = 256 * 1024
_FIELDS_MAX: Final = 1_000
_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


class Fields:
    """What was filled in. White space around a value and values of nothing else are left out."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        stripped = [(name, value.strip()) for name, value in pairs]
        self.pairs = [(name, value) for name, value in stripped if value]

    def get(self, name: str, default: str = "") -> str:
        """The last value of that name."""
        return next((value for each, value in reversed(self.pairs) if each == name), default)

    def all(self, name: str) -> list[str]:
        """Every value of that name, as from checkboxes."""
        return [value for each, value in self.pairs if each == name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


def read_query(call: Call) -> Fields:
    """The fields of a page's query. Raises InvalidParameter."""
    try:
        return Fields(_parse(call.scope["query_string"]))
    except ValueError:
        raise InvalidParameter("query", "must be UTF-8 text") from None


async def read_form(call: Call, bytes_max: int = FORM_BYTES_MAX) -> Fields:
    """The fields of a form that was sent. Raises WrongMediaType, InvalidBody, BodyTooLarge."""
    media_type = (call.header(b"content-type") or "").partition(";")[0].strip().lower()
    body = await call.body(bytes_max)
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
