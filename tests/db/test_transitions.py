"""Every pair of a state and an event, on a real database, through the product's own statements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.domain.states import TERMINAL, State, TransitionEvent, after
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import happen
from tests.db.rows import put_job, row_of

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)

TAKEN_OVER = (State.FINALIZING, TransitionEvent.FINALIZE)
"""No move, but no nothing either: who fell silent while finalizing is taken over from, under a new
lease (tests/remote_calls/test_taking_over.py)."""

PAIRS = [
    (state, event) for event in TransitionEvent for state in State if (state, event) != TAKEN_OVER
]
LEGAL = [(state, event) for state, event in PAIRS if after(state, event) is not None]
ILLEGAL = [(state, event) for state, event in PAIRS if after(state, event) is None]


@pytest.mark.parametrize(("state", "event"), LEGAL)
async def test_a_legal_event_leads_where_the_table_says(
    state: State, event: TransitionEvent, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state, **ripe_for(event))
    await happen(event, job, worker)
    assert State((await row_of(connection, job))["state"]) is after(state, event)


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
async def test_an_event_the_table_does_not_know_changes_nothing(
    state: State, event: TransitionEvent, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state, **ripe_for(event))
    before = await row_of(connection, job)
    await happen(event, job, worker)
    assert await row_of(connection, job) == before


def test_every_pair_is_tried() -> None:
    assert len(LEGAL) + len(ILLEGAL) == len(State) * len(TransitionEvent) - 1
    assert {state for state, _ in LEGAL} == set(State) - TERMINAL


def ripe_for(event: TransitionEvent) -> dict[str, object]:
    """The columns that let ``event`` happen, whatever the state."""
    match event:
        case TransitionEvent.DUE:
            return {"run_at": LONG_AGO}
        case TransitionEvent.EXPIRE:
            return {"start_deadline": LONG_AGO}
        case TransitionEvent.CRASH_AGAIN:
            return {"crashes": 1}
        case _:
            return {}
