"""Every key of every tenant table begins with org_id, so the schema can be distributed by it."""

from __future__ import annotations

from tests.db.edge_guard import AsyncpgConnection

NOT_OF_A_TENANT = {
    "workers",
    "process_metrics",
    "llm_targets",
    "schema_steps",
    "deployment",
}
"""Processes, the operator's targets, schema steps and the name of the whole belong to nobody."""

UNIQUE_INDEXES = """
    SELECT t.relname AS table_name, x.relname AS index_name,
           pg_get_indexdef(i.indexrelid, 1, false) AS first_column
    FROM pg_index AS i
    JOIN pg_class AS t ON t.oid = i.indrelid
    JOIN pg_class AS x ON x.oid = i.indexrelid
    WHERE t.relnamespace = 'public'::regnamespace AND (i.indisunique OR i.indisexclusion)
"""


async def test_every_unique_index_of_a_tenant_table_begins_with_its_organisation(
    connection: AsyncpgConnection,
) -> None:
    indexes = await connection.fetch(UNIQUE_INDEXES)
    tenants = [index for index in indexes if index["table_name"] not in NOT_OF_A_TENANT]
    assert {index["index_name"]: index["first_column"] for index in tenants} == {
        index["index_name"]: "org_id" for index in tenants
    }


async def test_every_tenant_table_has_a_primary_key(connection: AsyncpgConnection) -> None:
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    )
    keyed = await connection.fetch(
        "SELECT conrelid::regclass::text FROM pg_constraint "
        "WHERE contype = 'p' AND connamespace = 'public'::regnamespace"
    )
    assert {row[0] for row in tables} == {row[0] for row in keyed}
    assert {row[0] for row in tables} >= NOT_OF_A_TENANT | {"jobs", "job_events", "artifacts"}


async def test_no_foreign_key_binds_one_table_to_another(connection: AsyncpgConnection) -> None:
    """A foreign key without org_id, or a default that counts over all tenants, would not
    distribute. `seq` of job_events is only ever compared within one job."""
    foreign = await connection.fetch("SELECT conname FROM pg_constraint WHERE contype = 'f'")
    assert foreign == []
