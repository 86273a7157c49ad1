"""Keeps every change of a job's state, so that a test can count what happened and not only what is.

A trigger of the test's own writes into a table of the test's own, in the transaction of the change:
what was rolled back leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import asyncpg

from coatcheck.domain.states import EDGES, INITIAL, State

_KEEP = """
CREATE TABLE job_history (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id     uuid NOT NULL,
    before job_state,
    after  job_state NOT NULL,
    lease  bigint
);
CREATE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO job_history (id, after) VALUES (NEW.id, NEW.state);
    ELSE
        INSERT INTO job_history (id, before, after, lease)
        VALUES (NEW.id, OLD.state, NEW.state, coalesce(NEW.lease, OLD.lease));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_history_of_new AFTER INSERT ON jobs
    FOR EACH ROW EXECUTE FUNCTION keep_history();
CREATE TRIGGER keep_history_of_changes AFTER UPDATE ON jobs
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION keep_history();
"""


@dataclass(frozen=True)
class Transition:
    """A job came into being (``before`` is None) or changed its state, under this lease."""

    id: UUID
    before: State | None
    after: State
    lease: int | None

    @property
    def legal(self) -> bool:
        if self.before is None:
            return self.after in INITIAL
        return (self.before, self.after) in EDGES


async def keep(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Begin to keep the history of this database."""
    await connection.execute(_KEEP)


async def read(connection: asyncpg.Connection[asyncpg.Record]) -> list[Transition]:
    rows = await connection.fetch(
        "SELECT id, before::text, after::text, lease FROM job_history ORDER BY number"
    )
    return [
        Transition(row[0], None if row[1] is None else State(row[1]), State(row[2]), row[3])
        for row in rows
    ]


def completions(transitions: list[Transition], job_id: UUID) -> int:
    """How often a job was completed."""
    return sum(each.id == job_id and each.after is State.COMPLETED for each in transitions)
