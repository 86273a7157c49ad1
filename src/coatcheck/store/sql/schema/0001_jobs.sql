-- The job table: queue, state machine and result store in one.
--
-- Tenancy. Every primary key and unique constraint begins with org_id, so the tables can be
-- distributed by org_id on Citus without a change; `workers` holds no tenant data and would be a
-- reference table there.
--
-- Ids. 128 bits, stored as uuid (16 bytes). People see them as ULIDs (see domain/ids.py).
--
-- Leases. `lease` is (worker boot << 40 | claim number): it names its holder, is fresh for every
-- claim, and is NULL in every state nobody holds. Fenced writes compare it and nothing else:
-- adding the state to their WHERE made the planner leave the primary key (see DESIGN, traps).
--
-- Payload and result are bytea: JSON goes in and comes out byte for byte (integers stay integers),
-- and the server spends no time parsing what it will not look into.

CREATE TYPE job_state AS ENUM (
    'staged', 'queued', 'dispatching', 'processing', 'finalizing',
    'retrying', 'cancel_requested', 'completed', 'failed', 'cancelled'
);

CREATE TYPE job_lane AS ENUM ('urgent', 'standard', 'bulk');

CREATE TABLE jobs (
    org_id            text COLLATE "C" NOT NULL,
    id                uuid NOT NULL,
    lane              job_lane NOT NULL,
    state             job_state NOT NULL DEFAULT 'queued',
    failures_max      smallint NOT NULL,
    failures          smallint NOT NULL DEFAULT 0,
    crashes           smallint NOT NULL DEFAULT 0,
    interruptions     smallint NOT NULL DEFAULT 0,
    unreachables      smallint NOT NULL DEFAULT 0,
    lease             bigint,
    run_at            timestamptz NOT NULL DEFAULT now(),
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    dispatched_at     timestamptz,
    started_at        timestamptz,
    finished_at       timestamptz,
    start_deadline    timestamptz,
    run_deadline      timestamptz,
    expires_at        timestamptz,
    timeout_seconds   real,
    keep_completed_seconds integer,
    keep_failed_seconds    integer,
    progress          real,
    endpoint          text COLLATE "C" NOT NULL,
    flow              text COLLATE "C" NOT NULL,
    idempotency_key   text COLLATE "C",
    fingerprint       bytea,
    request_id        text,
    progress_note     text,
    error_code        text,
    error_message     text,
    payload           bytea,
    result            bytea,

    PRIMARY KEY (org_id, id),

    CONSTRAINT lease_held_exactly_while_running CHECK (
        (lease IS NOT NULL)
        = (state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested'))
    ),
    CONSTRAINT terminal_rows_are_settled_and_empty CHECK (
        state NOT IN ('completed', 'failed', 'cancelled')
        OR (finished_at IS NOT NULL AND expires_at IS NOT NULL AND payload IS NULL)
    )
);

-- One idempotency key, one job. Also what a re-POST looks up before its body is read.
CREATE UNIQUE INDEX jobs_idempotency ON jobs (org_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

-- What the claim walks: the flows of an endpoint that have work, then each flow's oldest jobs.
-- `endpoint` comes before `org_id` because a worker asks only for the endpoints it serves.
CREATE INDEX jobs_ready ON jobs (lane, endpoint, org_id, flow, run_at, id)
    WHERE state = 'queued';

-- What the stager walks.
CREATE INDEX jobs_due ON jobs (run_at)
    WHERE state IN ('staged', 'retrying');

-- What the rescuer walks, by holder. On an expression, so that no fenced write can be tempted to
-- find its row by lease: a whole claim shares one, and that plan reads the batch once per row.
CREATE INDEX jobs_held ON jobs ((lease >> 40))
    WHERE lease IS NOT NULL;

-- What the expirer walks.
CREATE INDEX jobs_start_deadline ON jobs (start_deadline)
    WHERE start_deadline IS NOT NULL AND state IN ('staged', 'queued', 'retrying');

-- What the pruner walks.
CREATE INDEX jobs_expired ON jobs (expires_at)
    WHERE expires_at IS NOT NULL;

-- A queue's dead rows are dear: every claim steps over them. Vacuum by count, not by share of a
-- table that keeps its history, and leave room on pages for the two updates each job gets.
ALTER TABLE jobs SET (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 1
);
