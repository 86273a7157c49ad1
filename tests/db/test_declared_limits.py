"""Limits that code declares for its endpoints, beside those set by hand."""

from __future__ import annotations

from coatcheck.core.queries.limits import (
    clear_limit,
    declare_limits,
    list_limits,
    set_limit,
    sharing,
)
from coatcheck.domain.job import ConcurrencyLimit
from tests.db.claimer import Claimer
from tests.db.rows import ENDPOINT

OTHER = "demo.post__other"


def on(endpoint: str, held_max: int) -> ConcurrencyLimit:
    return ConcurrencyLimit("*", "endpoint", endpoint, held_max)


async def test_a_declaration_sets_changes_and_withdraws_its_own_limits(worker: Claimer) -> None:
    await declare_limits(worker.line, {ENDPOINT: 3, OTHER: 5})
    assert await list_limits(worker.line, "a") == [on(OTHER, 5), on(ENDPOINT, 3)]
    await declare_limits(worker.line, {ENDPOINT: 4, OTHER: None})
    assert await list_limits(worker.line, "a") == [on(ENDPOINT, 4)]


async def test_a_declaration_leaves_the_endpoints_it_does_not_name_alone(worker: Claimer) -> None:
    """Another worker's code declares those."""
    await declare_limits(worker.line, {ENDPOINT: 3})
    await declare_limits(worker.line, {OTHER: 5})
    assert await list_limits(worker.line, "a") == [on(OTHER, 5), on(ENDPOINT, 3)]


async def test_what_was_set_by_hand_is_neither_changed_nor_withdrawn(worker: Claimer) -> None:
    await set_limit(worker.line, on(ENDPOINT, 7))
    await declare_limits(worker.line, {ENDPOINT: 3})
    await declare_limits(worker.line, {ENDPOINT: None})
    assert await list_limits(worker.line, "a") == [on(ENDPOINT, 7)]


async def test_what_was_declared_and_then_set_by_hand_stays_as_set(worker: Claimer) -> None:
    """Else the next worker to start would undo what an operator has just done."""
    await declare_limits(worker.line, {ENDPOINT: 3})
    await set_limit(worker.line, on(ENDPOINT, 1))
    await declare_limits(worker.line, {ENDPOINT: 3})
    assert await list_limits(worker.line, "a") == [on(ENDPOINT, 1)]


async def test_once_the_hand_is_off_a_declaration_counts_again(worker: Claimer) -> None:
    await set_limit(worker.line, on(ENDPOINT, 1))
    assert await clear_limit(worker.line, "*", "endpoint", ENDPOINT)
    await declare_limits(worker.line, {ENDPOINT: 3})
    assert await list_limits(worker.line, "a") == [on(ENDPOINT, 3)]


async def test_an_organisation_sees_its_own_limits_and_those_of_endpoints(worker: Claimer) -> None:
    mine = ConcurrencyLimit("a", "org", "", 2)
    await set_limit(worker.line, mine)
    await set_limit(worker.line, ConcurrencyLimit("b", "org", "", 2))
    await set_limit(worker.line, on(ENDPOINT, 7))
    assert await list_limits(worker.line, "a") == [on(ENDPOINT, 7), mine]


async def test_a_worker_can_tell_whether_there_are_limits_at_all(worker: Claimer) -> None:
    assert not (await sharing(worker.line)).limited
    await set_limit(worker.line, on(ENDPOINT, 7))
    assert (await sharing(worker.line)).limited
    await clear_limit(worker.line, "*", "endpoint", ENDPOINT)
    assert not (await sharing(worker.line)).limited
    assert not await clear_limit(worker.line, "*", "endpoint", ENDPOINT)
