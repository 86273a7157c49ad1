-- Work that a remote service does. A worker spawns it and parks the job; from then on the row here says
-- when to check it next, and the process that checks it moves the job on.

-- A job that no worker holds while a remote runs it is held under a lease of boot 0, which no worker
-- ever has: fenced writes stay what they are, and the rescuer leaves such jobs to the poller.
CREATE SEQUENCE parked_leases AS bigint MINVALUE 1 MAXVALUE 1099511627775;

CREATE TABLE remote_calls (
    org_id       text COLLATE "C" NOT NULL,
    job_id       uuid NOT NULL,
    -- The number of the job's spawn. The token depends on it, so it changes only once an earlier spawn
    -- is known to be over: a worker that takes the job over from a dead one has the same token, and
    -- finds the same work.
    spawn        smallint NOT NULL DEFAULT 0,
    -- How often this spawn was begun. Beyond the first time, it may have been made already.
    tries        smallint NOT NULL DEFAULT 1,
    begun_by     bigint NOT NULL,
    endpoint     text COLLATE "C" NOT NULL,
    -- Calls of one pace key go to one place, and usually take about as long.
    pace_key     text COLLATE "C" NOT NULL,
    -- Where to: JSON without the body (domain/remote_work.py). May hold secrets; deleted with the row.
    destination  bytea NOT NULL,
    begun_at     timestamptz NOT NULL DEFAULT now(),
    spawned_at   timestamptz,
    remote_id    text,
    -- The id that a callback gave the work, before we knew it.
    told_id      text,
    -- The lease of the job while it is parked, and of the process that finalizes it. NULL until it is
    -- spawned.
    lease        bigint,
    -- When the next check is due; while `looker` checks it, when that claim expires.
    due_at       timestamptz,
    looker       uuid,
    looked_at    timestamptz,
    polls        integer NOT NULL DEFAULT 0,
    -- Invalid answers in a row.
    faults       smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (org_id, job_id),

    CONSTRAINT parked_as_a_whole CHECK (
        (lease IS NULL) = (due_at IS NULL)
        AND (lease IS NULL OR (remote_id IS NOT NULL AND spawned_at IS NOT NULL))
    )
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 1
);

-- The poller walks it: from one organisation to the next, and in each what is due first.
CREATE INDEX remote_calls_due ON remote_calls (org_id, due_at) WHERE due_at IS NOT NULL;

-- Calls that may no longer be needed.
CREATE INDEX remote_calls_idle ON remote_calls (org_id, job_id) WHERE lease IS NULL;

-- How long work of one kind usually takes, to time the polls.
CREATE TABLE remote_paces (
    org_id        text COLLATE "C" NOT NULL,
    pace_key      text COLLATE "C" NOT NULL,
    usual_seconds real NOT NULL,
    -- How far durations usually are from it.
    spread_seconds real NOT NULL,
    samples       integer NOT NULL DEFAULT 1,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, pace_key)
);
