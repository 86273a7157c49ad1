-- Limits: how many jobs may be held at once, and how many requests or starts per time are allowed.

-- Concurrency. A permit is a held job: nothing is counted up or down, so nothing can drift, and a
-- killed worker's permits come back when its jobs are rescued.
--
--   scope      org_id   name        limits
--   endpoint   '*'      endpoint    that endpoint, all organisations together
--   endpoint   an org   endpoint    that endpoint, for that organisation
--   org        an org   ''          everything of that organisation
--   flow       an org   flow        one flow of that organisation
--
-- `declared` marks limits that a worker's code declares; the others were set through the engine.

CREATE TABLE concurrency_limits (
    org_id      text COLLATE "C" NOT NULL,
    scope       text NOT NULL CHECK (scope IN ('endpoint', 'org', 'flow')),
    name        text COLLATE "C" NOT NULL,
    held_max    integer NOT NULL CHECK (held_max >= 0),
    declared    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (org_id, scope, name)
);

-- The limits on all tasks of a run together: how many are held at once, and how many start per second, of
-- all of them and of each of its flows. NULL is no limit; `held_max` of 0 stops the run.
--
-- A run's flows are its name, 32 hexadecimal digits, and names that begin with it and a slash. In the
-- order of "C" nothing sorts between them, and the name with a '0' sorts right behind: the claim passes
-- a whole run in one step, and looks into it when it is the run's turn.
--
-- Not in concurrency_limits: one row has all that the claim needs to know of a run, and is deleted with
-- it.

CREATE TABLE run_limits (
    org_id         text COLLATE "C" NOT NULL,
    run            text COLLATE "C" NOT NULL,
    held_max       integer CHECK (held_max >= 0),
    per_second     double precision CHECK (per_second BETWEEN 0.001 AND 100000),
    key_per_second double precision CHECK (key_per_second BETWEEN 0.001 AND 100000),
    PRIMARY KEY (org_id, run)
);

-- When a run, or a flow of it, is back in step with its rate: each start moves `in_step_at` on by the
-- time between two. It may be ahead of the clock by RATE_BURST_SECONDS, and no further (the generic cell
-- rate algorithm). A row behind the clock means the same as no row.
--
-- The run itself has the row with an empty flow. It stores where the last claim ended its scan for flows
-- that have work and no row, and when the next scan may begin, after one that found nothing.
--
-- Logged, unlike rate_windows: it is written with a claim, which is logged as well, and a rate of one
-- start per quarter of an hour would otherwise not survive a crash of the server. Only claims write here,
-- one at a time (claims/lock), so there is no contention for the rows of a run.

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

-- Which flows of a run may start a task now, and when the next one may.
CREATE INDEX run_tokens_next ON run_tokens (org_id, run, in_step_at) WHERE flow <> '';

-- How much of each rate limit of requests is used in its current window. One row for each limit,
-- overwritten from window to window: `name` is the key or organisation of the limit, `seconds` the
-- length of its window, so that a limit with a new window starts afresh and no request counts in two
-- lengths.
--
-- `used` is what replicas have taken; `requests_max` and `granted` belong to the last statement that
-- wrote the row, which reads from them what it was granted (`take` in core/queries/rates.sql).
--
-- Unlogged: it needs no write-ahead log and no flush. After a crash of the server counting starts again,
-- which allows at most one more window of requests.

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
