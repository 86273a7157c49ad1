"""Where claims go on: what is remembered of organisations, what is sent, and what is forgotten."""

from __future__ import annotations

import pytest

from coatcheck.domain import claim_choice
from coatcheck.domain.claim_choice import ClaimRotation, QueuePosition

PLACE = QueuePosition("demo.post__work", "flow")


def remembering(*orgs: str, after: str = "") -> ClaimRotation:
    turns = ClaimRotation()
    turns.move([], dict.fromkeys(orgs, PLACE), after or None)
    return turns


def test_those_that_come_first_are_sent_and_no_more_than_there_is_room_for() -> None:
    turns = remembering("a", "b", "c", "d", after="b")
    assert list(turns.next_places(3)) == ["c", "d", "a"]
    assert list(turns.next_places(10)) == ["c", "d", "a", "b"]
    assert ClaimRotation().next_places(10) == {}


def test_one_that_was_passed_and_has_no_place_any_more_is_forgotten() -> None:
    turns = remembering("a", "b", "c", "d", after="b")
    turns.move(["c", "d", "a"], {"d": PLACE}, "d")
    assert turns.after_org == "d"
    assert list(turns.next_places(10)) == ["a", "b", "d"]


def test_one_that_a_claim_did_not_come_to_is_kept_across_the_end_of_the_round() -> None:
    turns = remembering("a", "b", "c", after="b")
    turns.move(["c", "a", "b"], {}, "a")
    assert list(turns.next_places(10)) == ["b"]


def test_a_claim_that_saw_everybody_forgets_whoever_was_sent_and_has_no_place() -> None:
    turns = remembering("a", "b", "c", after="b")
    turns.move(["a", "b", "c"], {"b": PLACE}, None)
    assert turns.after_org == "b"
    assert list(turns.next_places(10)) == ["b"]


def test_of_too_many_the_one_that_was_set_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_choice, "ORG_TURNS_MAX", 3)
    turns = remembering("a", "b", "c")
    turns.move([], {"a": PLACE}, "a")
    turns.move([], {"d": PLACE}, "d")
    assert len(turns) == 3
    assert sorted(turns.next_places(10)) == ["a", "c", "d"]
