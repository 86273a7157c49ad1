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
