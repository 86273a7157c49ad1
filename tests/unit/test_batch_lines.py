"""Lines of a list: which are tasks, and what is wrong with the others."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.limits import CUSTOM_ID_CHARACTERS_MAX, JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX
from coatcheck.products.batches.lines import as_line, parse, parse_list
from coatcheck.products.batches.model import BadLine


def inputs(data: bytes) -> list[Any]:
    parsed = parse_list(data)
    assert parsed.bad == []
    return [json.loads(given) for given in parsed.inputs]


def only_bad(line: bytes) -> BadLine:
    """What is said of a bad line that stands between two good ones."""
    parsed = parse(b"1\n" + line + b"\n3\n")
    assert parsed.inputs == [b"1", b"3"]
    assert parsed.lines == 3
    (bad,) = parsed.bad
    return bad


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_any_json_value_is_a_task() -> None:
    assert inputs(b'{"a": 1}\n[2]\n"text"\n3\n4.5\ntrue\nnull\n') == [
        {"a": 1},
        [2],
        "text",
        3,
        4.5,
        True,
        None,
    ]


def test_the_last_line_needs_no_newline_and_a_newline_begins_no_line() -> None:
    assert parse_list(b"1\n2").lines == 2
    assert parse_list(b"1\n2\n").lines == 2


def test_line_ends_of_other_systems_and_a_byte_order_mark_are_fine() -> None:
    parsed = parse_list(b'\xef\xbb\xbf{"a":1}\r\n2\r\n')

    assert parsed == ([b'{"a":1}', b"2"], [None, None], [], 2)


def test_blank_lines_are_counted_but_neither_tasks_nor_bad() -> None:
    parsed = parse_list(b"\n1\n  \n\t\r\n2\n\n")

    assert parsed == ([b"1", b"2"], [None, None], [], 6)


def test_lines_are_numbered_from_the_first_given() -> None:
    parsed = parse(b"1\nx\n\nnope\n", first_line=101)

    assert [bad.line for bad in parsed.bad] == [102, 104]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b'{"a":', "not_json", "it ends too early"),
        (b"{'a': 1}", "not_json", "byte 1"),
        (b"[1,]", "not_json", "trailing comma"),
        (b"1 2", "not_json", "trailing characters"),
        (b"NaN", "not_json", "invalid character"),
        (b"[Infinity]", "not_json", "invalid character"),
        (b"-Infinity", "not_json", "invalid"),
        (b'"\x00"', "not_json", "invalid character"),
        (b'"\\ud800"', "not_json", "too early"),
        (b'{"a":"\xff"}', "not_utf8", "at byte 6"),
        ("grün".encode("latin-1"), "not_utf8", "at byte 2"),
        ('"text"'.encode("utf-16"), "not_utf8", "at byte 0"),
        (b'"cut off \xe2\x82', "not_utf8", "at byte 9"),
        (b'{"a":"\\u0000"}', "nul_character", "NUL"),
        (b'{"\\u0000":1}', "nul_character", "NUL"),
        (b"[1e999]", "number_out_of_range", "out of range"),
        (b"1" * 310 + b".5", "number_out_of_range", "out of range"),
        (b"1" * 230 + b"e99", "number_out_of_range", "out of range"),
        (b"1" * 5_000, "number_out_of_range", "out of range"),
        (nested(JSON_DEPTH_MAX + 1), "too_deep", "32 levels"),
        (nested(100_000), "too_deep", "32 levels"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "too_deep", "32 levels"),
        (b'"' + b"x" * PAYLOAD_BYTES_MAX + b'"', "line_too_long", "1048576 bytes"),
        (b'{"custom_id":5,"input":1}', "invalid_custom_id", "must be text"),
        (b'{"custom_id":null,"input":1}', "invalid_custom_id", "must be text"),
        (b'{"custom_id":"","input":1}', "invalid_custom_id", "1 to 255"),
        (
            b'{"custom_id":"' + b"x" * (CUSTOM_ID_CHARACTERS_MAX + 1) + b'","input":1}',
            "invalid_custom_id",
            "1 to 255",
        ),
        (b'{"custom_id":"a\\u0000","input":1}', "nul_character", "NUL"),
        (b'{"custom_id":"\xff","input":1}', "not_utf8", "at byte 14"),
        (b'{"custom_id":"a","input":}', "not_json", "byte"),
        (b'{"custom_id":"a","input":' + nested(40) + b"}", "too_deep", "32 levels"),
    ],
)
def test_a_bad_line_says_what_is_wrong_with_it(line: bytes, code: str, message: str) -> None:
    bad = only_bad(line)

    assert (bad.line, bad.code) == (2, code)
    assert message in bad.message


@pytest.mark.parametrize(
    "line",
    [
        nested(JSON_DEPTH_MAX),
        b'"' + b"[" * 100 + b'"',
        b'{"a":"' + b"{" * 100 + b'\\"' + b"[" * 100 + b'"}',
        b"[" + b",".join([b"[]"] * 100) + b"]",
        b'"a backslash and then \\\\u0000"',
        b"1e308",
        b'"hash e1e999 of 3e123"',
        b'{"sha":"3e1234567890","n":1e-400}',
        b'"' + b"1" * 500 + b'"',
        b"1" * 4_000,
        '"grün ☕"'.encode(),
        b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"',
        b'"\\u00e9"',
    ],
)
def test_a_line_that_only_looks_suspicious_is_a_task(line: bytes) -> None:
    parsed = parse(b"1\n" + line + b"\n3")

    assert parsed.bad == []
    assert parsed.inputs == [b"1", line, b"3"]


def test_what_is_said_of_a_bad_line_never_quotes_it() -> None:
    secret = b"hunter2"
    for line in (
        secret,
        b'{"a": ' + secret,
        b'{"' + secret + b'": "\xff"}',
        b'{"custom_id":{"hunter2":1},"input":"hunter2"}',
    ):
        assert "hunter2" not in only_bad(line).message


def test_a_line_of_the_two_fields_is_named_in_any_order_and_spelling() -> None:
    parsed = parse_list(
        b'{"custom_id":"a","input":{"x":1}}\n'
        b'{"input": [2] , "custom_id": "b"}\n'
        b' { "custom_id" : "\xc3\xbc" , "input" : null }\n'
        b'{"custom\\u005fid":"d","input":4}\n'
        b'{"custom_id":"' + b"x" * CUSTOM_ID_CHARACTERS_MAX + b'","input":5}\n'
    )

    assert parsed.bad == []
    assert parsed.inputs == [b'{"x":1}', b"[2]", b"null", b"4", b"5"]
    assert parsed.custom_ids == ["a", "b", "ü", "d", "x" * CUSTOM_ID_CHARACTERS_MAX]


@pytest.mark.parametrize(
    "line",
    [
        b'{"custom_id":"a"}',
        b'{"input":1}',
        b'{"custom_id":"a","input":1,"other":2}',
        b'{"custom_id":5,"url":"https://example.org"}',
        b'["custom_id","input"]',
        b'{"task":{"custom_id":"a","input":1}}',
        b'"custom_id"',
    ],
)
def test_what_merely_looks_like_a_named_line_is_an_input(line: bytes) -> None:
    assert parse_list(line) == ([line], [None], [], 1)


def test_an_input_is_bounded_with_what_will_frame_it() -> None:
    parsed = parse(b'"1234567"\n"12345678"\n{"custom_id":"a long name","input":1}\n', 1, 9)

    assert parsed.inputs == [b'"1234567"', b"1"]
    assert [(bad.line, bad.code) for bad in parsed.bad] == [(2, "line_too_long")]


def test_a_value_of_several_lines_becomes_one_line() -> None:
    value = b'{"a":\r\n [1,\n  2]}'

    assert b"\n" not in as_line(value)
    assert inputs(as_line(value)) == [json.loads(value)]


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["custom_id", "input", "a", "ü"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.lists(_json))
def test_whatever_is_written_as_lines_is_read_back(values: list[Any]) -> None:
    for ascii_only in (True, False):
        lines = [json.dumps(value, ensure_ascii=ascii_only).encode() for value in values]
        parsed = parse_list(b"\n".join(lines))
        expected = [read for value in values if (read := _as_task(value)) is not None]
        found = [
            (custom_id, json.loads(given))
            for given, custom_id in zip(parsed.inputs, parsed.custom_ids, strict=True)
        ]

        assert repr(found) == repr(expected)
        assert len(parsed.bad) == len(values) - len(expected)


def _as_task(value: Any) -> tuple[str | None, Any] | None:
    if not isinstance(value, dict) or value.keys() != {"custom_id", "input"}:
        return None, value
    custom_id = value["custom_id"]
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= CUSTOM_ID_CHARACTERS_MAX:
        return None
    return custom_id, value["input"]


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)))
def test_whatever_comes_each_line_is_judged_alone(lines: list[bytes]) -> None:
    """As it would be by a plain reader that is given one line at a time."""
    parsed = parse(b"\n".join([*lines, b""]))
    bad = {each.line for each in parsed.bad}
    good = [line for number, line in enumerate(lines, 1) if number not in bad]

    assert parsed.lines == len(lines)
    assert all(_is_good(line) for line in good if line.strip(b" \t\r"))
    assert not any(_is_good(lines[number - 1]) for number in bad)


def _is_good(line: bytes) -> bool:
    try:
        value = msgspec.json.decode(line.decode())
    except (UnicodeDecodeError, msgspec.DecodeError):
        return False
    return not (isinstance(value, float) and math.isnan(value))
