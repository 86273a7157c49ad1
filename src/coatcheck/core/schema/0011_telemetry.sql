-- Recent job statistics, and the metrics that processes push.

-- By organisation and lane: counts and distributions of times, by the minute, the quarter of an hour
-- and the hour. Overviews and forecasts read these few rows, never the jobs.
--
-- Statistics, not accounting: every process counts in memory and adds its counts every few seconds, so a
-- killed one loses its last seconds (docs/adr/0028). Billing uses `usage`, which is exact.
--
-- One statement writes all steps. The rows of organisation '*' are the sums over all organisations: an
-- operator reads as few rows as anybody else.
--
-- `waits` is how long jobs had been due when they were claimed, `runs` how long attempts ran: how many
-- fell into each of the buckets of domain/durations.py, without the empty ones at the end.

CREATE TABLE job_roll_ups (
    org_id       text COLLATE "C" NOT NULL,
    step_seconds smallint NOT NULL CHECK (step_seconds IN (60, 900, 3600)),
    at           timestamptz NOT NULL,
    lane         job_lane NOT NULL,
    submitted    bigint NOT NULL,
    started      bigint NOT NULL,
    completed    bigint NOT NULL,
    failed       bigint NOT NULL,
    cancelled    bigint NOT NULL,
    retried      bigint NOT NULL,
    rescued      bigint NOT NULL,
    waits        integer[] NOT NULL,
    runs         integer[] NOT NULL,
    PRIMARY KEY (org_id, step_seconds, at, lane)
) WITH (
    -- The rows of the current steps are changed over and over.
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);

CREATE TABLE failure_roll_ups (
    org_id       text COLLATE "C" NOT NULL,
    step_seconds smallint NOT NULL CHECK (step_seconds IN (60, 900, 3600)),
    at           timestamptz NOT NULL,
    code         text COLLATE "C" NOT NULL,
    jobs         bigint NOT NULL,
    PRIMARY KEY (org_id, step_seconds, at, code)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);

-- Retention walks these.
CREATE INDEX job_roll_ups_old ON job_roll_ups (step_seconds, at);
CREATE INDEX failure_roll_ups_old ON failure_roll_ups (step_seconds, at);

-- One row per process, overwritten every few seconds with all its Prometheus samples: workers listen on
-- no socket, so the server that Prometheus asks adds the rows up. Counts must never go back, so an
-- ended process is folded: its counts are added to the row of kind 'gone', and its own row stays for a
-- while, without samples, so that a process that was only asleep learns which of its pushes were counted
-- (core/process_metrics.py).

CREATE TABLE process_metrics (
    process    uuid PRIMARY KEY,
    kind       text NOT NULL,
    push       bigint NOT NULL,
    pushed_at  timestamptz NOT NULL DEFAULT now(),
    ended      boolean NOT NULL DEFAULT false,
    samples    bytea
) WITH (fillfactor = 50);

INSERT INTO process_metrics (process, kind, push, samples)
VALUES ('00000000-0000-0000-0000-000000000000', 'gone', 0, '');
