"""URLs of ours: what was signed counts, to the letter, and nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.blobs.signing import Grant, Grants
from coatcheck.domain.errors import NotFound, SignedUrlExpired

GRANTS = Grants("a pepper that is only ever used in tests")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
EXPIRES = int((NOW + timedelta(hours=1)).timestamp())
GRANT = Grant("GET", "exports/d/b/e/x", EXPIRES, "export.zip", "application/zip")
TOKEN = GRANTS.token(GRANT)


def test_what_was_signed_is_read_as_it_was() -> None:
    put = Grant("PUT", "uploads/d/u", EXPIRES, bytes_max=10_000_000_000)
    assert GRANTS.read(TOKEN, "GET", NOW) == GRANT
    assert GRANTS.read(GRANTS.token(put), "PUT", NOW) == put


def test_a_token_needs_no_escape_in_a_path() -> None:
    assert all(letter.isalnum() or letter in "-_" for letter in TOKEN)


def test_a_url_is_for_one_method_alone() -> None:
    with pytest.raises(NotFound):
        GRANTS.read(TOKEN, "PUT", NOW)


def test_a_url_ends_at_its_second() -> None:
    last = datetime.fromtimestamp(EXPIRES, UTC) - timedelta(microseconds=1)
    assert GRANTS.read(TOKEN, "GET", last) == GRANT
    with pytest.raises(SignedUrlExpired):
        GRANTS.read(TOKEN, "GET", last + timedelta(microseconds=1))


def test_another_deployments_signature_is_none() -> None:
    with pytest.raises(NotFound):
        Grants("the pepper of somebody else, as long as it").read(TOKEN, "GET", NOW)


def test_every_other_letter_anywhere_makes_it_unknown() -> None:
    for at, letter in enumerate(TOKEN):
        for other in ("A", "-", "z"):
            if other != letter:
                with pytest.raises(NotFound):
                    GRANTS.read(TOKEN[:at] + other + TOKEN[at + 1 :], "GET", NOW)


@pytest.mark.parametrize("token", ["", "x", TOKEN + "A", TOKEN[:-1], TOKEN + "=", TOKEN + "\n"])
def test_a_token_is_spelt_in_one_way(token: str) -> None:
    with pytest.raises(NotFound):
        GRANTS.read(token, "GET", NOW)


@given(st.text())
def test_whatever_is_no_token_is_not_found(token: str) -> None:
    with pytest.raises(NotFound):
        GRANTS.read(token, "GET", NOW)


def test_an_expired_url_with_a_bad_signature_is_not_said_to_have_expired() -> None:
    """Else anybody could ask what a URL that they made up would have been."""
    flipped = TOKEN[:5] + ("A" if TOKEN[5] != "A" else "B") + TOKEN[6:]
    with pytest.raises(NotFound):
        GRANTS.read(flipped, "GET", NOW + timedelta(days=1))
