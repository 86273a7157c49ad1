"""What is sealed opens with its key, in its place, unchanged; and in no other way."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.sealing import SealBroken, Sealer, UnknownKey, derived

OLD, NEW = "o" * 32, "n" * 32
PLACE = ("acme", "id")
LABEL = "tests"


def test_what_was_sealed_is_opened_by_whoever_has_the_key() -> None:
    sealed = Sealer([NEW], LABEL).seal(PLACE, b"hush")
    assert "hush" not in sealed
    assert Sealer([OLD, NEW], LABEL).open(PLACE, sealed) == b"hush"


def test_the_same_is_never_sealed_alike_twice() -> None:
    sealer = Sealer([NEW], LABEL)
    assert sealer.seal(PLACE, b"hush") != sealer.seal(PLACE, b"hush")


def test_the_first_key_seals_and_says_so() -> None:
    sealer = Sealer([NEW, OLD], LABEL)
    sealed = sealer.seal(PLACE, b"hush")
    assert sealed.split(".")[1] == sealer.key_ids[0] == Sealer([NEW], LABEL).key_ids[0]
    assert len({*sealer.key_ids, *Sealer([NEW], "another use").key_ids}) == 3
    assert NEW not in sealed


def test_a_key_that_is_not_set_is_named() -> None:
    sealed = Sealer([OLD], LABEL).seal(PLACE, b"hush")
    with pytest.raises(UnknownKey) as refused:
        Sealer([NEW], LABEL).open(PLACE, sealed)
    assert refused.value.key_id == Sealer([OLD], LABEL).key_ids[0]
    with pytest.raises(UnknownKey):
        Sealer([], LABEL).open(PLACE, sealed)


@pytest.mark.parametrize("place", [("globex", "id"), ("acme", "other"), ("acme", "id", ""), ()])
def test_it_does_not_open_in_another_place(place: tuple[str, ...]) -> None:
    sealer = Sealer([NEW], LABEL)
    with pytest.raises(SealBroken):
        sealer.open(place, sealer.seal(PLACE, b"hush"))


def test_no_two_places_are_written_alike() -> None:
    sealer = Sealer([NEW], LABEL)
    sealed = sealer.seal(("a", "b,c"), b"hush")
    for place in (("a", "b", "c"), ("a,b", "c"), ('a","b', "c"), ("a\0b,c",)):
        with pytest.raises(SealBroken):
            sealer.open(place, sealed)


def test_what_was_changed_or_cut_does_not_open() -> None:
    sealer = Sealer([NEW], LABEL)
    sealed = sealer.seal(PLACE, b"hush")
    start = sealed.rindex(".") + 1
    changed = [
        sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        for at in range(start, len(sealed) - 1)
    ]
    cut = [sealed[:length] for length in range(start, len(sealed) - 1)]
    garbled = ["", "v1", "v1..", "hush", f"{sealed}.", f"v2{sealed[2:]}", f" {sealed}", "ä" * 60]
    for text in (*changed, *cut, *garbled):
        with pytest.raises(SealBroken):
            sealer.open(PLACE, text)


@given(key=st.text(), label=st.text(), length=st.integers(1, 32))
def test_a_key_is_derived_as_hkdf_says(key: str, label: str, length: int) -> None:
    hkdf = HKDF(hashes.SHA256(), length, salt=None, info=label.encode())
    assert derived(key, label, length) == hkdf.derive(key.encode())


@pytest.mark.parametrize("length", [0, 33])
def test_a_key_has_at_most_one_block(length: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 32 bytes"):
        derived("k" * 32, LABEL, length)
