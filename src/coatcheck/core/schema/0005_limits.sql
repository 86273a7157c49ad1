-- Limits: how many jobs may be held at once, and how many requests or starts a time may have.

-- Concurrency. A permit is a held job: nothing is counted up or down, so nothing can drift, and a
-- killed worker's permits come back when its jobs are rescued.
--
--   scope      org_id   name        caps
--   endpoint   '*'      endpoint    that endpoint, all organisations together
--   endpoint   an org   endpoint    that endpoint, for that organisation
--   org        an org   ''          everything of that organisation
--   flow       an org   flow        one flow of that organisation
--
-- `declared` marks those that a worker's code declares; the others were set through the engine.

CREATE TABLE concurrency_limits (
    org_id      text COLLATE "C" NOT NULL,
    scope       text NOT NULL CHECK (scope IN ('endpoint', 'org', 'flow')),
    name        text COLLATE "C" NOT NULL,
    held_max    integer NOT NULL CHECK (held_max >= 0),
    declared    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (org_id, scope, name)
);

-- What holds for all tasks of a run together: how many are held at once, and how many are started
-- in a second, of all of them and of each of its flows. NULL is no limit; `held_max` of 0 stops it.
--
-- A run's flows are its name, 32 hexadecimal digits, and names that begin with it and a slash. In
-- the order of "C" nothing stands between them, and the name with a '0' stands right behind: the
-- claim passes a whole run in one step, and looks into it when it is the run's turn.
--
-- Not in concurrency_limits: one row tells the claim all there is to know of a run, and goes with
-- it.

CREATE TABLE run_limits (
    org_id         text COLLATE "C" NOT NULL,
    run            text COLLATE "C" NOT NULL,
    held_max       integer CHECK (held_max >= 0),
    per_second     double precision CHECK (per_second BETWEEN 0.001 AND 100000),
    key_per_second double precision CHECK (key_per_second BETWEEN 0.001 AND 100000),
    PRIMARY KEY (org_id, run)
);

-- When a run, or a flow of it, would be back in step with its rate: each start moves `in_step_at`
-- on by the time between two. It may be ahead of the clock by RATE_BURST_SECONDS, and no further
-- (the generic cell rate algorithm). A row that is behind the clock says no more than none does.
--
-- The run itself has the row with no flow. It remembers at which flow the last claim ended its look
-- for flows that have work and no row, and when the next look may begin, after one in vain.
--
-- Logged, unlike rate_windows: it is written with a claim, which is, and a rate of one start in a
-- quarter of an hour would otherwise not survive a crash of the server. Only claims write here, one
-- at a time (sql/limits/lock_limits.sql), so rows of one run are never fought over.

CREATE TABLE run_tokens (
    org_id       text COLLATE "C" NOT NULL,
    run          text COLLATE "C" NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    in_step_at   timestamptz NOT NULL,
    looked_to    text COLLATE "C" NOT NULL DEFAULT '',
    next_look_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (org_id, run, flow)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1
);

-- Which flows of a run may start something now, and when the next one may.
CREATE INDEX run_tokens_next ON run_tokens (org_id, run, in_step_at) WHERE flow <> '';

-- How much of each rate limit of requests is used up in its current window. One row for each limit,
-- written over from window to window: `name` is the key or the organisation it holds for, `seconds`
-- its window's length, so that a limit whose window is changed begins afresh and nobody counts in two
-- lengths.
--
-- `used` is what was handed out to replicas; `requests_max` and `granted` are those of the last
-- statement that wrote the row, which is how it learns what it was given (sql/rates/take.sql).
--
-- Unlogged: it costs no write-ahead log and no flush, and after a crash of the server counting
-- begins again, which lets at most one more window's worth in.

CREATE UNLOGGED TABLE rate_windows (
    org_id       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    seconds      integer NOT NULL CHECK (seconds > 0),
    window_start timestamptz NOT NULL,
    used         bigint NOT NULL CHECK (used >= 0),
    requests_max bigint NOT NULL,
    granted      bigint NOT NULL,
    PRIMARY KEY (org_id, name, seconds)
) WITH (fillfactor = 50);
