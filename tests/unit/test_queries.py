"""Fields of a query."""

from __future__ import annotations

import pytest

from coatcheck.domain.errors import InvalidParameter
from coatcheck.http.parameters import (
    ignored_note,
    read_choice,
    read_list,
    read_whole_number,
    refuse_unknown,
)
from tests.unit.calls import a_call


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("200", 200), ("007", 7)])
def test_a_whole_number(text: str, number: int) -> None:
    assert read_whole_number({"limit": text}, "limit", 1, 200, default=50) == number


def test_a_number_that_is_not_there_is_the_default() -> None:
    assert read_whole_number({}, "limit", 1, 200, default=50) == 50


@pytest.mark.parametrize(
    "text",
    ["", "0", "201", "-1", "+1", "1.0", "1e2", " 1", "٣", "²", "x", "0" * 25 + "1", "9" * 5000],
)
def test_what_is_no_number_within_bounds_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="limit: must be a whole number from 1 to 200"):
        read_whole_number({"limit": text}, "limit", 1, 200, default=50)


def test_a_choice() -> None:
    assert read_choice({"lane": "bulk"}, "lane", ["bulk", "urgent"]) == "bulk"
    assert read_choice({}, "lane", ["bulk"]) is None
    for text in ("", "Bulk", "bulk "):
        with pytest.raises(InvalidParameter, match="must be one of bulk"):
            read_choice({"lane": text}, "lane", ["bulk"])


def test_a_list() -> None:
    assert read_list({"ids": "a,b,,a"}, "ids", 3) == ["a", "b", "a"]
    for text in ("", ",", "a,b,c,d"):
        with pytest.raises(InvalidParameter, match="must be a list of 1 to 3"):
            read_list({"ids": text}, "ids", 3)
    with pytest.raises(InvalidParameter):
        read_list({}, "ids", 3)


def test_unknown_fields_are_refused_by_name() -> None:
    refuse_unknown({"a": ""}, ("a", "b"))
    with pytest.raises(InvalidParameter, match="c: is not a known field; known fields are a, b"):
        refuse_unknown({"a": "", "c": ""}, ("a", "b"))
    with pytest.raises(InvalidParameter, match=r"c: is not a known field$"):
        refuse_unknown({"c": ""}, ())


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ("", {}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=+%2B", {"a": " +"}),
        ("%C3%A9=%E2%9C%93", {"é": "✓"}),
        ("&&a=1&", {"a": "1"}),
    ],
)
def test_a_query_is_read(raw: str, fields: dict[str, str]) -> None:
    assert a_call(query=raw).query == fields


@pytest.mark.parametrize(
    "raw", ["a=1&a=2", "a=%FF", "a=é", "&".join(f"f{number}=" for number in range(101))]
)
def test_a_query_that_cannot_be_read_is_refused(raw: str) -> None:
    with pytest.raises(InvalidParameter):
        a_call(query=raw).query  # noqa: B018 - reading is what is tested


def test_fields_that_are_ignored_are_named_in_a_note() -> None:
    assert ignored_note({"a": "1"}, ["a", "b"]) == ()
    ((name, note),) = ignored_note({"a": "1", "previousDomains": "[]"}, ["a"])
    assert name == b"warning"
    assert note == (b'299 - "unknown fields of the query were ignored: previousDomains"')


def test_a_note_repeats_no_name_that_is_no_plain_word_and_not_very_many() -> None:
    ((_, note),) = ignored_note({'x"\r\ny': "1", "z": "1"}, [])
    assert note.endswith(b': z, another one"')
    ((_, note),) = ignored_note({f"n{at}": "" for at in range(50)}, [])
    assert note.endswith(b'n9, 40 others"')
