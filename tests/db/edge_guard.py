"""Triggers, for tests only, that refuse every step the domain's table does not know, and a commit
that leaves a queued job where no claim finds it, a lease that no row of ``claims`` leads to, a
staged or retrying job without its row of ``postponed``, a start deadline that nobody looks at, or
an unsuccessful job or an ended task where no list finds it.

They stand in the template database, so every test that uses the `dsn` fixture runs under it:
whatever statement makes an illegal step, in whatever test, fails there and then.

A step is looked at once it is made. A trigger that looks before it would have PostgreSQL lock each
row, and take its newest version, before the constraints of a row are checked: that is not so
without it, and would hide what statements that meet do to each other. The queue and claims are
looked at when a transaction commits, as are the tables of ended jobs: its statements may write them
in any order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from coatcheck.domain.states import EDGES, INITIAL, State

if TYPE_CHECKING:
    AsyncpgConnection = asyncpg.Connection[asyncpg.Record]
else:
    AsyncpgConnection = asyncpg.Connection


async def install(dsn: str) -> None:
    """Guard the jobs of this database."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_statements())
    finally:
        await connection.close()


async def remove(connection: AsyncpgConnection) -> None:
    """Take the guard away, for a test that counts what the product's own statements do."""
    await connection.execute(
        "DROP TRIGGER only_legal_steps ON jobs; DROP TRIGGER only_legal_beginnings ON jobs;"
        "DROP TRIGGER queued_jobs_are_found ON jobs;"
        "DROP TRIGGER unsuccessful_jobs_are_found ON jobs;"
        "DROP TRIGGER ended_tasks_are_found ON jobs;"
        "DROP TRIGGER only_named_leases ON jobs; DROP TRIGGER only_rows_without_leases ON claims;"
        "DROP TRIGGER postponed_jobs_are_found ON jobs;"
        "DROP TRIGGER only_rows_of_postponed_jobs ON postponed;"
        "DROP TRIGGER postponed_rows_go ON jobs;"
        "DROP TRIGGER start_deadlines_are_looked_at ON jobs;"
        "DROP TRIGGER only_rows_to_look_at ON start_deadlines"
    )


@asynccontextmanager
async def unguarded(connection: AsyncpgConnection) -> AsyncIterator[None]:
    """Let a test put rows into any state: no trigger fires on this connection meanwhile."""
    await connection.execute("SET session_replication_role = replica")
    try:
        yield
    finally:
        await connection.execute("RESET session_replication_role")


def _statements() -> str:
    edges = ", ".join(f"('{source}', '{target}')" for source, target in sorted(EDGES))
    return f"""
        CREATE FUNCTION refuse_illegal_step() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'INSERT' THEN
                RAISE EXCEPTION 'a job cannot begin as %', NEW.state;
            END IF;
            RAISE EXCEPTION 'a job cannot go from % to %', OLD.state, NEW.state;
        END $$;

        CREATE TRIGGER only_legal_steps AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (
            OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN ({edges})
        )
        EXECUTE FUNCTION refuse_illegal_step();

        CREATE TRIGGER only_legal_beginnings AFTER INSERT ON jobs FOR EACH ROW
        WHEN (NEW.state NOT IN ({_literals(INITIAL)}))
        EXECUTE FUNCTION refuse_illegal_step();

        CREATE FUNCTION refuse_lost_job() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.id = ANY (coalesce((
                SELECT q.ids FROM queue AS q
                WHERE (q.lane, q.endpoint, q.org_id, q.flow, q.run_at)
                      = (NEW.lane, NEW.endpoint, NEW.org_id, NEW.flow, NEW.run_at)
                  AND q.id >= NEW.id
                ORDER BY q.id LIMIT 1
            ), '{{}}')) OR NOT EXISTS (
                SELECT FROM jobs AS j
                WHERE j.org_id = NEW.org_id AND j.id = NEW.id AND j.state = 'queued'
            ) OR EXISTS (
                SELECT FROM queue AS q
                WHERE (q.lane, q.endpoint, q.org_id, q.flow, q.run_at)
                      = (NEW.lane, NEW.endpoint, NEW.org_id, NEW.flow, NEW.run_at)
                  AND NEW.id = ANY (q.ids)
            ) THEN
                RETURN NULL;
            END IF;
            RAISE EXCEPTION 'the job % is queued, and no row of the queue names it', NEW.id;
        END $$;

        CREATE CONSTRAINT TRIGGER queued_jobs_are_found
        AFTER INSERT OR UPDATE OF state, lane, endpoint, flow, run_at ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'queued')
        EXECUTE FUNCTION refuse_lost_job();

        CREATE FUNCTION refuse_unnamed_lease() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            jobs_written uuid[];
            unnamed uuid;
            org text;
            held_by bigint;
        BEGIN
            IF TG_TABLE_NAME = 'jobs' THEN
                org := NEW.org_id; held_by := NEW.lease; jobs_written := ARRAY[NEW.id];
            ELSE
                org := OLD.org_id; held_by := OLD.lease; jobs_written := OLD.ids;
            END IF;
            SELECT j.id INTO unnamed
            FROM unnest(jobs_written) AS w (id)
            JOIN jobs AS j ON j.org_id = org AND j.id = w.id AND j.lease = held_by
            WHERE NOT EXISTS (
                SELECT FROM claims AS k
                WHERE k.org_id = org AND k.lease = held_by AND j.id = ANY (k.ids)
            );
            IF FOUND THEN
                RAISE EXCEPTION 'no row of claims leads to job %, held under %', unnamed, held_by;
            END IF;
            RETURN NULL;
        END $$;

        CREATE CONSTRAINT TRIGGER only_named_leases AFTER INSERT OR UPDATE ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.lease IS NOT NULL)
        EXECUTE FUNCTION refuse_unnamed_lease();

        CREATE CONSTRAINT TRIGGER only_rows_without_leases AFTER UPDATE OR DELETE ON claims
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        EXECUTE FUNCTION refuse_unnamed_lease();

        CREATE FUNCTION refuse_wrongly_postponed() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            org text;
            job uuid;
        BEGIN
            IF TG_OP = 'DELETE' THEN
                org := OLD.org_id; job := OLD.id;
            ELSE
                org := NEW.org_id; job := NEW.id;
            END IF;
            IF EXISTS (
                SELECT
                FROM (
                    SELECT * FROM jobs AS j
                    WHERE j.org_id = org AND j.id = job AND j.state IN ('staged', 'retrying')
                ) AS j
                FULL JOIN (
                    SELECT * FROM postponed AS p WHERE p.org_id = org AND p.id = job
                ) AS p ON p.id = j.id
                WHERE (p.run_at, p.state, p.lane, p.endpoint, p.run_id, p.task_index, p.error_code)
                      IS DISTINCT FROM
                      (j.run_at, j.state, j.lane, j.endpoint, j.run_id, j.task_index, j.error_code)
            ) THEN
                RAISE EXCEPTION 'the job % and its row of postponed do not agree', job;
            END IF;
            RETURN NULL;
        END $$;

        CREATE CONSTRAINT TRIGGER postponed_jobs_are_found AFTER INSERT OR UPDATE ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state IN ('staged', 'retrying'))
        EXECUTE FUNCTION refuse_wrongly_postponed();

        CREATE CONSTRAINT TRIGGER only_rows_of_postponed_jobs
        AFTER INSERT OR UPDATE OR DELETE ON postponed
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        EXECUTE FUNCTION refuse_wrongly_postponed();

        -- STABLE: it sees what the statement saw. A row that was written since may stay.
        CREATE FUNCTION refuse_left_row() RETURNS trigger LANGUAGE plpgsql STABLE AS $$
        BEGIN
            IF EXISTS (
                SELECT FROM postponed AS p
                WHERE p.org_id = OLD.org_id AND p.id = OLD.id AND p.xmax = '0'::xid
            ) THEN
                RAISE EXCEPTION 'the job % is %, and keeps its row of postponed', NEW.id, NEW.state;
            END IF;
            RETURN NULL;
        END $$;

        CREATE TRIGGER postponed_rows_go AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (
            OLD.state IN ('staged', 'retrying') AND NEW.state NOT IN ('staged', 'retrying')
        )
        EXECUTE FUNCTION refuse_left_row();

        CREATE FUNCTION refuse_unlisted_job() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (
                SELECT FROM unsuccessful_jobs AS u
                WHERE u.org_id = NEW.org_id AND u.id = NEW.id AND u.state = NEW.state
                  AND u.service_hash = hashtextextended(
                      job_service(NEW.endpoint, NEW.flow) || NEW.org_id, 0
                  )
                  AND u.owner_hash = hashtext(NEW.owner)
            ) OR NOT EXISTS (
                SELECT FROM jobs AS j
                WHERE j.org_id = NEW.org_id AND j.id = NEW.id AND j.state = NEW.state
            ) THEN
                RETURN NULL;
            END IF;
            RAISE EXCEPTION 'the job % is %, and unsuccessful_jobs lacks it', NEW.id, NEW.state;
        END $$;

        CREATE CONSTRAINT TRIGGER unsuccessful_jobs_are_found
        AFTER INSERT OR UPDATE OF state, endpoint, flow, owner ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (NEW.state IN ('failed', 'cancelled') AND NEW.run_id IS NULL)
        EXECUTE FUNCTION refuse_unlisted_job();

        CREATE FUNCTION refuse_unlisted_task() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF 1 = (
                SELECT count(*)
                FROM ended_tasks AS t
                CROSS JOIN LATERAL unnest(t.numbers, t.ids) AS n (number, id)
                WHERE t.org_id = NEW.org_id AND t.run_id = NEW.run_id AND t.state = NEW.state
                  AND t.block = NEW.task_index / 64
                  AND n.number = NEW.task_index AND n.id = NEW.id
            ) OR NOT EXISTS (
                SELECT FROM jobs AS j
                WHERE j.org_id = NEW.org_id AND j.id = NEW.id AND j.state = NEW.state
            ) THEN
                RETURN NULL;
            END IF;
            RAISE EXCEPTION 'the task % is %, and ended_tasks lacks it', NEW.id, NEW.state;
        END $$;

        CREATE CONSTRAINT TRIGGER ended_tasks_are_found
        AFTER INSERT OR UPDATE OF state, run_id, task_index ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (NEW.state IN ('completed', 'failed', 'cancelled') AND NEW.run_id IS NOT NULL)
        EXECUTE FUNCTION refuse_unlisted_task();

        CREATE FUNCTION refuse_unwatched_job() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            org text;
            job uuid;
        BEGIN
            IF TG_OP = 'DELETE' THEN
                org := OLD.org_id; job := OLD.id;
            ELSE
                org := NEW.org_id; job := NEW.id;
            END IF;
            IF EXISTS (
                SELECT FROM jobs AS j
                WHERE j.org_id = org AND j.id = job AND j.start_deadline IS NOT NULL
                  AND j.state NOT IN ('completed', 'failed', 'cancelled')
                  AND NOT EXISTS (
                      SELECT FROM start_deadlines AS d
                      WHERE d.org_id = j.org_id AND d.id = j.id
                        AND d.due_at <= greatest(j.start_deadline, now() + interval '1 minute')
                  )
            ) THEN
                RAISE EXCEPTION 'nobody looks whether the job % has started', job;
            END IF;
            RETURN NULL;
        END $$;

        CREATE CONSTRAINT TRIGGER start_deadlines_are_looked_at
        AFTER INSERT OR UPDATE OF start_deadline ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.start_deadline IS NOT NULL)
        EXECUTE FUNCTION refuse_unwatched_job();

        CREATE CONSTRAINT TRIGGER only_rows_to_look_at AFTER UPDATE OR DELETE ON start_deadlines
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        EXECUTE FUNCTION refuse_unwatched_job();
    """


def _literals(states: Iterable[State]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))
