from __future__ import annotations

import pytest

from coatcheck.http.files import Span, Unsatisfiable, if_range_matches, names_etag, requested_span

SIZE = 100


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, 100),
        ("bytes=10-19", 10, 20),
        ("bytes=99-", 99, 100),
        ("bytes=50-1000", 50, 100),
        ("bytes=-1", 99, 100),
        ("bytes=-1000", 0, 100),
        (" Bytes = 1-2 ", 1, 3),
    ],
)
def test_one_range_of_bytes_is_given(header: str, start: int, stop: int) -> None:
    span = requested_span(header, SIZE)
    assert span == Span(start, stop, SIZE)
    assert span.length == stop - start
    assert span.content_range == f"bytes {start}-{stop - 1}/100"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes=-",
        "bytes=5-4",
        "bytes=0-1,3-4",
        "lines=0-1",
        "bytes=a-b",
        "bytes=1",
        "bytes=" + "9" * 30 + "-",
    ],
)
def test_what_is_no_range_or_several_asks_for_all(header: str | None) -> None:
    assert requested_span(header, SIZE) is None


@pytest.mark.parametrize(
    ("header", "size"),
    [("bytes=100-", SIZE), ("bytes=200-300", SIZE), ("bytes=-0", SIZE), ("bytes=0-", 0)],
)
def test_a_range_after_the_end_cannot_be_given(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        requested_span(header, size)


def test_a_known_etag_is_found_in_any_spelling_of_a_list() -> None:
    for header in ('"a"', 'W/"a"', '"b", "a"', '"b",W/"a"', "*"):
        assert names_etag(header, "a")
    for absent in (None, "", "a", '"b"', '"aa"'):
        assert not names_etag(absent, "a")


def test_a_range_is_of_what_it_was_asked_of() -> None:
    assert if_range_matches(None, "a")
    assert if_range_matches('"a"', "a")
    for other in ('"b"', 'W/"a"', "Mon, 16 Nov 2026 00:00:00 GMT"):
        assert not if_range_matches(other, "a")
