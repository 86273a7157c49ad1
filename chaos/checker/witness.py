"""Triggers that record what happened inside the database, besides the history from outside.

They write into their own tables in the same transaction, so that a rolled back change leaves no
trace, and a committed one leaves a trace even if its answer was lost.

``job_history`` is that of ``tests/e2e/faults/history.py``, with more columns: what each transition
added to the counters of attempts, the values to meter, and, for a crash, how long the holder had
been silent, its lease, and whether it was reported dead. ``end_history`` has each change of a
finished job, of which there must be none.
"""

from __future__ import annotations

import asyncpg

from tests.e2e.faults import history

_MORE = """
ALTER TABLE job_history
    ADD COLUMN at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN org_id         text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN endpoint       text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN lane           text NOT NULL DEFAULT 'standard',
    ADD COLUMN run_id         uuid,
    ADD COLUMN failures       smallint NOT NULL DEFAULT 0,
    ADD COLUMN crashes        smallint NOT NULL DEFAULT 0,
    ADD COLUMN interruptions  smallint NOT NULL DEFAULT 0,
    ADD COLUMN unreachables   smallint NOT NULL DEFAULT 0,
    ADD COLUMN attempts       integer NOT NULL DEFAULT 0,
    ADD COLUMN result_bytes   bigint NOT NULL DEFAULT 0,
    ADD COLUMN silent         double precision,
    ADD COLUMN promised       double precision,
    ADD COLUMN died           boolean NOT NULL DEFAULT false;
CREATE INDEX job_history_of ON job_history (id, number);

CREATE TABLE worker_history (
    boot bigint NOT NULL,
    name text NOT NULL,
    at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE run_history (
    id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE OR REPLACE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    heard    timestamptz;
    promise  double precision;
    dead     boolean := false;
    had      smallint[] := '{0,0,0,0}';
    was      job_state;
    held     bigint := NEW.lease;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        was := OLD.state;
        held := coalesce(NEW.lease, OLD.lease);
        had := ARRAY[OLD.failures, OLD.crashes, OLD.interruptions, OLD.unreachables];
        IF NEW.crashes > OLD.crashes THEN
            SELECT w.last_seen_at, CASE NEW.lane
                       WHEN 'urgent' THEN w.urgent_seconds
                       WHEN 'standard' THEN w.standard_seconds
                       ELSE w.bulk_seconds
                   END, w.died_at IS NOT NULL
            INTO heard, promise, dead
            FROM workers AS w WHERE w.boot = OLD.lease >> 40;
        END IF;
    END IF;
    INSERT INTO job_history (
        id, before, after, lease, org_id, endpoint, lane, run_id, failures, crashes,
        interruptions, unreachables, attempts, result_bytes, silent, promised, died
    ) VALUES (
        NEW.id, was, NEW.state, held, NEW.org_id, NEW.endpoint, NEW.lane::text, NEW.run_id,
        NEW.failures - had[1], NEW.crashes - had[2], NEW.interruptions - had[3],
        NEW.unreachables - had[4],
        NEW.failures + NEW.crashes + (NEW.state = 'completed')::integer,
        coalesce(octet_length(NEW.result), 0), extract(epoch FROM now() - heard), promise,
        coalesce(dead, false)
    );
    RETURN NULL;
END $$;

CREATE TABLE end_history (
    id      uuid NOT NULL,
    state   job_state NOT NULL,
    changed text[] NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION keep_changed_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO end_history (id, state, changed)
    SELECT NEW.id, NEW.state, array_agg(n.key ORDER BY n.key)
    FROM jsonb_each_text(to_jsonb(NEW)) AS n
    JOIN jsonb_each_text(to_jsonb(OLD)) AS o USING (key)
    WHERE n.value IS DISTINCT FROM o.value;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_changed_ends AFTER UPDATE ON jobs
    FOR EACH ROW
    WHEN (OLD.state IN ('completed', 'failed', 'cancelled') AND NEW.state = OLD.state AND (
        OLD.result, OLD.error_code, OLD.error_message, OLD.finished_at,
        OLD.failures, OLD.crashes, OLD.interruptions, OLD.unreachables
    ) IS DISTINCT FROM (
        NEW.result, NEW.error_code, NEW.error_message, NEW.finished_at,
        NEW.failures, NEW.crashes, NEW.interruptions, NEW.unreachables
    ))
    EXECUTE FUNCTION keep_changed_end();

CREATE FUNCTION keep_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO worker_history (boot, name) VALUES (NEW.boot, NEW.name);
    RETURN NULL;
END $$;
CREATE TRIGGER keep_workers AFTER INSERT ON workers
    FOR EACH ROW EXECUTE FUNCTION keep_worker();

CREATE FUNCTION keep_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_history (id) VALUES (NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER keep_runs AFTER UPDATE ON runs
    FOR EACH ROW
    WHEN (NEW.completed_at IS NOT NULL AND OLD.completed_at IS DISTINCT FROM NEW.completed_at)
    EXECUTE FUNCTION keep_run();
"""


async def install(dsn: str) -> None:
    """Begin to keep what happens in this database.

    An illegal step is kept as any other, for the checker to find. The tests' guard, which refuses
    it, would make an error of it that the product retries, and nobody would know.
    """
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await history.keep(connection)
            await connection.execute(_MORE)
    finally:
        await connection.close()
