"""The table of transitions: what must be true of it whatever it says."""

from __future__ import annotations

import pytest

from coatcheck.domain.states import (
    EDGES,
    HELD,
    INITIAL,
    RUNNING,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    State,
    TransitionEvent,
    after,
)


def reachable_from(beginnings: frozenset[State]) -> set[State]:
    reached = set(beginnings)
    while more := {target for source, target in EDGES if source in reached} - reached:
        reached |= more
    return reached


def test_terminal_states_absorb() -> None:
    for state in TERMINAL:
        assert {event for event in TransitionEvent if after(state, event)} == set()


def test_every_state_can_be_reached() -> None:
    assert reachable_from(INITIAL) == set(State)


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_no_state_is_dead(state: State) -> None:
    assert reachable_from(frozenset({state})) & TERMINAL


def test_every_event_can_happen() -> None:
    assert {event for _, event in TRANSITIONS} == set(TransitionEvent)


def test_every_state_is_of_one_kind() -> None:
    assert len(WAITING) + len(HELD) + len(TERMINAL) == len(State)
    assert set(State) == WAITING | HELD | TERMINAL
    assert RUNNING < HELD
    assert INITIAL <= WAITING


def test_who_waits_can_be_cancelled_at_once_and_who_runs_is_asked() -> None:
    assert {after(state, TransitionEvent.CANCEL) for state in WAITING} == {State.CANCELLED}
    assert {after(state, TransitionEvent.CANCEL) for state in RUNNING} == {State.CANCEL_REQUESTED}


def test_what_was_asked_to_stop_never_runs_again() -> None:
    asked = {after(State.CANCEL_REQUESTED, event) for event in TransitionEvent} - {None}
    assert asked <= TERMINAL


def test_only_a_claim_gives_a_job_to_a_worker() -> None:
    taken = {
        event for (state, event), to in TRANSITIONS.items() if to in HELD and state not in HELD
    }
    assert taken == {TransitionEvent.CLAIM}


def test_the_properties_of_a_state_are_those_of_its_kind() -> None:
    assert {state for state in State if state.terminal} == TERMINAL
    assert {state for state in State if state.held} == HELD
