"""The idempotency key as it stands in a header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.errors import InvalidParameter
from coatcheck.http.parameters import read_idempotency_key
from tests.unit.calls import a_call

NAME = "Idempotency-Key"


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        ('  "abc"  ', "abc"),
        ('"with \\"quotes\\" and \\\\"', 'with "quotes" and \\'),
        ('a"b', 'a"b'),
        ("ä", "ä"),
        ("x" * 255, "x" * 255),
        ('"%s"' % ("x" * 255), "x" * 255),
        ("two words", "two words"),
    ],
)
def test_a_key_is_read(written: str, key: str) -> None:
    assert read_idempotency_key(a_call((NAME, written))) == key
    assert read_idempotency_key(a_call(("X-Idempotency-Key", written))) == key


@pytest.mark.parametrize(
    "written",
    ["", '""', '"', '"open', '"a"b"', '"a\\"', '"a\\b"', "x" * 256, "a\tb", "a\x7fb", "\u200b"],
)
def test_what_is_no_key_is_refused(written: str) -> None:
    with pytest.raises(InvalidParameter, match="Idempotency-Key"):
        read_idempotency_key(a_call((NAME, written)))


def test_bytes_that_are_no_text_are_refused() -> None:
    call = a_call()
    call.headers = {b"idempotency-key": b"\xff"}
    with pytest.raises(InvalidParameter):
        read_idempotency_key(call)


def test_no_header_is_no_key() -> None:
    assert read_idempotency_key(a_call()) is None


def test_both_headers_must_agree() -> None:
    other = "X-Idempotency-Key"
    assert read_idempotency_key(a_call((NAME, "a"), (other, '"a"'))) == "a"
    with pytest.raises(InvalidParameter, match="differ"):
        read_idempotency_key(a_call((NAME, "a"), (other, "b")))


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_every_ascii_key_can_be_quoted(key: str) -> None:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert read_idempotency_key(a_call((NAME, f'"{escaped}"'))) == key
