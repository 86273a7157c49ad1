"""What taking deliveries costs: by index, and as much as is taken, however long the queues are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from coatcheck.core.queries import sql
from coatcheck.db.connection import PINNED_PLANS, Connection
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import Plan, explain_query

TARGETS = 40
SUBJECTS = 50
"""Of each target, and two messages about each."""
PLACES, PER_TARGET = 128, 4
LEASE_SECONDS = 20.0


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    """With the settings of the deliverer's."""
    opened = Connection(dsn, name="test deliverer", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture
async def endpoint(connection: AsyncpgConnection) -> UUID:
    """Targets with long queues, delivered ones among them. One of them is fetched from."""
    await connection.execute(
        """
        INSERT INTO webhook_targets (org_id, id, url, events)
        SELECT 'acme', gen_random_uuid(), 'https://example.com/', '{job.failed}'
        FROM generate_series(1, $1::integer)
        """,
        TARGETS,
    )
    await connection.execute(
        """
        INSERT INTO webhook_deliveries (
            org_id, target_id, subject_kind, subject_id, event, facts, status, due_at, ended_at
        )
        SELECT t.org_id, t.id, 'job', s.id, 'job.failed', '{}', d.status,
               CASE d.status WHEN 'pending' THEN now() END,
               CASE d.status WHEN 'delivered' THEN now() END
        FROM webhook_targets AS t
        CROSS JOIN (
            SELECT gen_random_uuid() AS id FROM generate_series(1, $1::integer)
        ) AS s
        CROSS JOIN (VALUES ('delivered'), ('pending'), ('pending')) AS d (status)
        """,
        SUBJECTS,
    )
    await connection.execute("ANALYZE webhook_deliveries, webhook_targets")
    found: UUID = await connection.fetchval(
        "UPDATE webhook_targets SET pulled = true"
        " WHERE id = (SELECT min(id::text)::uuid FROM webhook_targets) RETURNING id"
    )
    return found


async def plan_of(line: Connection, statement: str, **arguments: object) -> Plan:
    return await line.run(lambda it: explain_query(it, sql, statement, **arguments))


async def test_a_claim_passes_over_what_must_wait_by_index(
    line: Connection, endpoint: UUID
) -> None:
    plan = await plan_of(
        line,
        "webhooks/claim",
        places=PLACES,
        failing_places=PLACES // 2,
        per_org=PLACES,
        per_target=PER_TARGET,
        lease_seconds=LEASE_SECONDS,
        after_org="",
        after_target=UUID(int=0),
        targets_max=1_000,
        lease=uuid4(),
    )
    assert plan.sequential_scans("webhook_deliveries") == 0
    assert "webhook_deliveries_untried" in plan.indexes("webhook_deliveries")
    # Each message that is taken, those that follow it, and a look before each of them.
    assert plan.rows_read("webhook_deliveries") < 10 * TARGETS * PER_TARGET


async def test_fetching_reads_as_much_as_is_fetched(line: Connection, endpoint: UUID) -> None:
    plan = await plan_of(
        line,
        "webhooks/pull",
        org="acme",
        endpoint=endpoint,
        rows_max=10,
        lease_seconds=LEASE_SECONDS,
        lease=uuid4(),
    )
    assert plan.sequential_scans("webhook_deliveries") == 0
    assert plan.rows_read("webhook_deliveries") < 10 * 10


async def test_holding_for_longer_reads_what_is_held(line: Connection, endpoint: UUID) -> None:
    ids = [uuid4() for _ in range(PLACES)]
    plan = await plan_of(
        line,
        "webhooks/renew",
        orgs=["acme"] * PLACES,
        deliveries=ids,
        leases=ids,
        lease_seconds=LEASE_SECONDS,
    )
    assert plan.sequential_scans("webhook_deliveries") == 0
    assert plan.rows_read("webhook_deliveries") <= PLACES


async def test_what_was_told_before_is_one_row_of_an_index(
    line: Connection, endpoint: UUID
) -> None:
    plan = await plan_of(
        line,
        "webhooks/previous_facts",
        org="acme",
        subject=UUID(int=1),
        target=endpoint,
        delivery=UUID(int=2**128 - 1),
    )
    assert plan.indexes("webhook_deliveries") == {"webhook_deliveries_subject"}
