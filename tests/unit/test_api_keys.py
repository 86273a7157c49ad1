from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain import ids, tenants
from coatcheck.domain.tenants import KeyText

GOOD = "cck_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "a" * 43


def test_a_fresh_key_has_a_ulid_and_256_random_bits() -> None:
    keys = [tenants.mint() for _ in range(200)]
    assert len({key.key_id for key in keys}) == len({key.secret for key in keys}) == 200
    for key in keys:
        assert ids.to_text(ids.from_text(key.key_id)) == key.key_id
        assert len(key.secret) == 43  # of 62 letters
        assert key.secret.isalnum()


def test_a_key_is_read_back_as_it_was_made() -> None:
    key = tenants.mint()
    assert tenants.parse(key.text.encode()) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cck_",
        GOOD.upper(),
        GOOD.replace("cck_", "cck"),
        GOOD.replace("cck_", "sk_"),
        GOOD.replace("01A", "91A"),  # no ULID begins so
        GOOD.replace("ARZ", "ARU"),  # nor has a letter U
        GOOD.replace("_aaa", "_aa_"),
        GOOD[:62],
        GOOD + "a" * 86,
        GOOD + "\n",
        " " + GOOD,
        GOOD + "é",
    ],
)
def test_what_is_no_key_is_not_read(text: str) -> None:
    assert tenants.parse(text.encode()) is None


@given(st.binary(max_size=200))
def test_any_bytes_can_be_looked_at(text: bytes) -> None:
    assert tenants.parse(text) is None


def test_what_is_stored_depends_on_the_secret_and_the_pepper_alone() -> None:
    key = KeyText("01ARZ3NDEKTSV4RRFFQ69G5FAV", b"s" * 43)
    assert key.digest(b"pepper") == hmac.digest(b"pepper", b"s" * 43, "sha256")
    assert key.digest(b"pepper") != key.digest(b"salt")


def test_a_key_that_is_logged_by_mistake_does_not_show_its_secret() -> None:
    key = tenants.mint()
    assert key.secret.decode() not in f"{key} {key!r} {[key]}"
