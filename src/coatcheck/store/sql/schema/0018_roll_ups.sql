-- What happened lately, by organisation and lane: counts and distributions of times, by the minute,
-- the quarter of an hour and the hour. What people look at (overviews, forecasts) reads these few rows,
-- never the jobs.
--
-- Statistics, not accounts: every process counts in memory and adds what it counted every few
-- seconds, so one that is killed takes its last seconds with it (docs/adr/0028). What is billed is
-- in `usage`, which is exact.
--
-- All steps are written by the same statement. The rows of organisation '*' are the sums over all of
-- them: whoever runs the deployment looks at as few rows as anybody else.
--
-- `waits` is how long jobs had been due when they were claimed, `runs` how long attempts ran: how
-- many fell into each of the buckets of domain/durations.py, the empty ones at the end left out.

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
);

CREATE TABLE failure_roll_ups (
    org_id       text COLLATE "C" NOT NULL,
    step_seconds smallint NOT NULL CHECK (step_seconds IN (60, 900, 3600)),
    at           timestamptz NOT NULL,
    code         text COLLATE "C" NOT NULL,
    jobs         bigint NOT NULL,
    PRIMARY KEY (org_id, step_seconds, at, code)
);

-- What the pruner of roll-ups walks.
CREATE INDEX job_roll_ups_old ON job_roll_ups (step_seconds, at);
CREATE INDEX failure_roll_ups_old ON failure_roll_ups (step_seconds, at);

-- The rows of the steps that are under way are changed over and over.
ALTER TABLE job_roll_ups SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE failure_roll_ups SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);

-- How many jobs a worker runs at a time in each of its `lanes`, in their order. Empty for one of an
-- earlier version: then nobody knows.
ALTER TABLE workers ADD COLUMN slots integer[] NOT NULL DEFAULT '{}';
