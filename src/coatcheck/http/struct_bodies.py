"""Reads a JSON body into a msgspec type, and says what does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from coatcheck.domain.errors import FieldIssue, InvalidBody, InvalidInput, InvalidParameter
from coatcheck.http.json_bodies import check_content_type, read_json
from coatcheck.http.request import Call

Body = TypeVar("Body", bound=msgspec.Struct)

_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_WHOLE: Final = "body"
_UNKNOWN: Final = re.compile(r"^[Oo]bject contains unknown field `(.*)`$", re.DOTALL)


async def read_body(call: Call, kind: type[Body], bytes_max: int) -> Body:
    """The body as ``kind``.

    Raises InvalidBody if it is no JSON, InvalidParameter for a field that would be silently lost,
    InvalidInput if a field does not fit.
    """
    data = await call.body(bytes_max)
    if not data:
        raise InvalidBody("A JSON body is needed.")
    check_content_type(call)
    value = read_json(data)
    return _fitted(lambda: msgspec.convert(value, kind))


async def read_optional_body(call: Call, kind: type[Body], bytes_max: int) -> Body:
    """The same where there may be none: then ``kind`` with nothing said."""
    if not await call.body(bytes_max):
        return kind()
    return await read_body(call, kind, bytes_max)


def read_as_written(data: bytes, kind: type[Body]) -> Body:
    """JSON as ``kind``, whose fields of type Raw keep what was written. Raises as ``read_body``."""
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
