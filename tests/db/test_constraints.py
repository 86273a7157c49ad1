"""The schema states the invariants: a row that breaks one cannot be written, by anybody."""

from __future__ import annotations

import asyncpg
import pytest

from coatcheck.domain.states import HELD, TERMINAL, State
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import put_job

UNHELD = sorted(set(State) - HELD)


@pytest.mark.parametrize("column", ["finished_at", "expires_at"])
async def test_a_terminal_row_is_settled(column: str, connection: AsyncpgConnection) -> None:
    for state in sorted(TERMINAL):
        with pytest.raises(
            asyncpg.CheckViolationError, match="terminal_rows_are_settled_and_empty"
        ):
            await put_job(connection, state, **{column: None})


async def test_a_terminal_row_holds_no_payload_unless_it_may_be_retried(
    connection: AsyncpgConnection,
) -> None:
    for state in sorted(TERMINAL):
        keeps_input = state is State.COMPLETED
        with pytest.raises(
            asyncpg.CheckViolationError, match="terminal_rows_are_settled_and_empty"
        ):
            await put_job(connection, state, payload=b"{}", keeps_input=keeps_input)


async def test_a_held_row_has_a_lease(connection: AsyncpgConnection) -> None:
    for state in sorted(HELD):
        with pytest.raises(asyncpg.CheckViolationError, match="lease_held_exactly_while_running"):
            await put_job(connection, state, lease=None)


async def test_a_row_that_nobody_holds_has_no_lease(connection: AsyncpgConnection) -> None:
    for state in UNHELD:
        with pytest.raises(asyncpg.CheckViolationError, match="lease_held_exactly_while_running"):
            await put_job(connection, state, lease=1 << 40 | 1)


async def test_one_organisation_has_one_job_for_a_key(connection: AsyncpgConnection) -> None:
    await put_job(connection, idempotency_key="k", org_id="a")
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_idempotency"):
        await put_job(connection, State.COMPLETED, idempotency_key="k", org_id="a")


async def test_organisations_do_not_share_keys(connection: AsyncpgConnection) -> None:
    await put_job(connection, idempotency_key="k", org_id="a")
    await put_job(connection, idempotency_key="k", org_id="b")
    assert await connection.fetchval("SELECT count(*) FROM jobs WHERE idempotency_key = 'k'") == 2


async def test_jobs_without_a_key_do_not_meet(connection: AsyncpgConnection) -> None:
    await put_job(connection)
    await put_job(connection)
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 2


async def test_the_domain_and_the_schema_name_the_same_states(
    connection: AsyncpgConnection,
) -> None:
    labels = await connection.fetchval("SELECT enum_range(NULL::job_state)::text[]")
    assert labels == [state.value for state in State]
