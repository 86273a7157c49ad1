"""The ``Prefer`` header (RFC 7240)."""

from __future__ import annotations

import pytest

from coatcheck.domain.errors import InvalidParameter
from coatcheck.http.parameters import NONE, Preferences, read_preferences
from tests.unit.calls import a_call


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], NONE),
        ([""], NONE),
        (["wait=5"], Preferences(5.0, applied=("wait=5",))),
        (["wait=0"], Preferences(0.0, applied=("wait=0",))),
        (['Wait = "2.5"'], Preferences(2.5, applied=("wait=2.5",))),
        (["wait=61"], Preferences(60.0, applied=("wait=60",))),
        (["wait=999999999"], Preferences(60.0, applied=("wait=60",))),
        (["wait=-5"], NONE),
        (["wait=soon"], NONE),
        (["wait"], NONE),
        (["wait=1e3"], Preferences(60.0, applied=("wait=60",))),
        (["respond-async"], Preferences(respond_async=True, applied=("respond-async",))),
        (["handling=strict"], Preferences(strict=True, applied=("handling=strict",))),
        (["handling=lenient"], Preferences(applied=("handling=lenient",))),
        (["handling=loose"], NONE),
        (["return=minimal"], NONE),
        (["wait=5; a=b"], Preferences(5.0, applied=("wait=5",))),
        (
            ["respond-async, wait=5", "handling=strict"],
            Preferences(5.0, True, True, ("respond-async", "wait=5", "handling=strict")),
        ),
        # Of one that comes twice the first counts.
        (["wait=5, wait=6"], Preferences(5.0, applied=("wait=5",))),
        (["wait=soon, wait=6"], NONE),
        (
            ["handling=strict", "handling=lenient"],
            Preferences(strict=True, applied=("handling=strict",)),
        ),
    ],
)
def test_what_is_made_of_a_header(lines: list[str], expected: Preferences) -> None:
    assert read_preferences(a_call(*(("Prefer", line) for line in lines))) == expected


def test_what_was_applied_is_echoed_in_one_header() -> None:
    preferences = read_preferences(a_call(("Prefer", "handling=strict, wait=5, unheard-of")))
    assert preferences.headers == [(b"preference-applied", b"handling=strict, wait=5")]
    assert NONE.headers == []


def test_the_querys_wait_goes_first_and_is_no_preference() -> None:
    preferences = read_preferences(a_call(("Prefer", "wait=5, respond-async"), query="wait=7"))
    assert preferences == Preferences(7.0, respond_async=True, applied=("respond-async",))
    assert read_preferences(a_call(query="wait=600")) == Preferences(60.0)
    assert read_preferences(a_call(query=f"wait={10**300}.0")) == Preferences(60.0)
    assert read_preferences(a_call(query="%77ait=7")) == Preferences(7.0)


def test_a_query_that_is_not_ours_is_not_read() -> None:
    call = a_call(("Prefer", "wait=5"), query="wait=never")
    assert read_preferences(call, in_query=False).wait == 5.0


@pytest.mark.parametrize("query", ["wait=", "wait=-1", "wait=never", "wait=1&wait=2", "wait=%201"])
def test_a_wait_in_the_query_that_is_no_number_is_refused(query: str) -> None:
    with pytest.raises(InvalidParameter):
        read_preferences(a_call(query=query))


def test_a_field_whose_name_only_contains_wait_is_none() -> None:
    assert read_preferences(a_call(query="await=1&wait_for=2")) is NONE
