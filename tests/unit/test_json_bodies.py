"""JSON from strangers: what json.loads takes within the limits is taken and equal, no more."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coatcheck.domain.errors import InvalidBody
from coatcheck.domain.limits import JSON_DEPTH_MAX
from coatcheck.http.bodies import read_json

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**4_000), max_value=10**4_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(['"', "\\", '\\"', "[[[[", "{{{{", "]", "\\u0000", "\\\\u0000"])
)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below) | st.dictionaries(TEXT, below), max_leaves=60
)


def depth(value: Any) -> int:
    """Of a value that was read, without recursion: it may be deep."""
    level, deepest = [value], 0
    while level := [each for each in level if isinstance(each, (list, dict))]:
        deepest += 1
        level = [
            item for each in level for item in (each.values() if isinstance(each, dict) else each)
        ]
    return deepest


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types, -0.0 told from 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_a_value_is_read_as_it_was_written(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    if depth(value) <= JSON_DEPTH_MAX:
        assert same(read_json(data), value)
    else:
        with pytest.raises(InvalidBody, match="32 levels"):
            read_json(data)


def outside_the_limits(value: Any) -> bool:
    """Whether what json.loads took is more than we take."""
    if depth(value) > JSON_DEPTH_MAX:
        return True
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str):
        return "\0" in value or any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return any(outside_the_limits(part) for item in value.items() for part in item)
    if isinstance(value, list):
        return any(map(outside_the_limits, value))
    return False


def first_of_equal_keys_matters(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A value that is overwritten is still in the text, and the text is what is bounded."""
    for name, value in pairs:
        if outside_the_limits(name) or outside_the_limits(value):
            return {"\0": None}
    return dict(pairs)


PIECES = st.sampled_from(
    [
        b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\\\u0000", b"\\ud800",
        b"\\udc00", b"\\ud83d\\ude00", b"\\n", b"a", b"\xc3\xa9", b"\xff", b"\x00", b"\x01", b"1",
        b"-", b"0", b".", b"e", b"E+", b"400", b"null", b"true", b"false", b"NaN", b"Infinity",
        b" ", b"\n", b'"a":', b"[]", b"{}", b'""', b"/", b"\xef\xbb\xbf", b"[" * 33, b"]" * 33,
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join))
@example(b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX)
@example(b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1))
@example(b'{"a":' * 40 + b"1" + b"}" * 40)
@example(b"[" + b"[]," * 50 + b"{}]")
@example(b'["' + b"[" * 50 + b'"]')
@example(b'["\\"' + b"[" * 50 + b'"]')
@example(b'["\\\\", ' + b"[" * 32 + b"]" * 32 + b"]")
@example(b"[" * 100_000)
@example(b'"\\\\\\u0000"')
@example(b"1e400")
@example(b"-0")
@example(b"1" * 4_300)
@example(b"1" * 4_301)
def test_what_the_standard_library_takes_within_the_limits_is_taken_and_nothing_else(
    data: bytes,
) -> None:
    try:
        expected = json.loads(data.decode("utf-8"), object_pairs_hook=first_of_equal_keys_matters)
        fits = not outside_the_limits(expected)
    except (ValueError, RecursionError):
        fits = False
    if fits:
        assert same(read_json(data), expected)
    else:
        with pytest.raises(InvalidBody):
            read_json(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"secret": 1, }', "trailing comma in object (byte 14)"),
        (b'{"secret"', "ends too early"),
        (b"", "ends too early"),
        (b"NaN", "invalid character (byte 0)"),
        (b'["secret", "\xff"]', "UTF-8 text, at byte 12"),
        (b'["secret", "\\ud800"]', "surrogate pair, at byte 12"),
        (b'["secret", "\\udc00 "]', "surrogate pair, at byte 12"),
        (b'["secret", "\\u0000"]', "NUL character, at byte 12"),
        (b'["secret", 1e999]', "number that is out of range"),
        (b"[" * 33 + b"]" * 33, "more than 32 levels"),
    ],
)
def test_a_refusal_says_what_and_where_and_does_not_quote(data: bytes, text: str) -> None:
    with pytest.raises(InvalidBody) as refused:
        read_json(data)
    assert text in str(refused.value)
    assert "secret" not in str(refused.value)
