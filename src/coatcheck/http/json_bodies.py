"""Reads JSON that strangers sent: within bounds, as it was written, or not at all.

Integers stay integers, of up to 4,300 digits, and floats stay floats; a number that no float can
hold is refused, and so are NaN and the infinities, which are not JSON. Of a key that comes twice
the last counts. NUL is refused because PostgreSQL's text and jsonb cannot hold it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from coatcheck.domain.errors import InvalidBody, WrongMediaType
from coatcheck.domain.limits import JSON_DEPTH_MAX
from coatcheck.http.request import Call

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
    """The value that ``data`` holds. Raises InvalidBody, which says what is wrong and where.

    Its text never quotes the body.
    """
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidBody(_what_is_wrong(data, error)) from None
    except RecursionError:
        raise _too_deep() from None
    # Both checks look at the text, because that is cheap: few brackets cannot nest deeply.
    if data.count(b"[") + data.count(b"{") > JSON_DEPTH_MAX and _depth_is_over(data):
        raise _too_deep()
    if _NUL in data:
        found = _ESCAPED_NUL.search(data)
        if found is not None:
            raise InvalidBody(f"The body has a NUL character, at byte {found.start(1)}.")
    return value


def check_content_type(call: Call, otherwise: str = "") -> None:
    """Raises WrongMediaType unless the body says that it is JSON, or says nothing of its type.

    ``otherwise`` is what to tell a caller of a route that takes bodies of another type as well.
    """
    given = call.headers.get(b"content-type")
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
    if problem == str(error) or "surrogate" in problem:  # it was not told where
        lone = _LONE_SURROGATE.search(data)
        if lone is not None:
            return f"The body has half of a surrogate pair, at byte {lone.start()}."
        return "The body is not JSON: it ends too early."
    return f"The body is not JSON: {problem}."
