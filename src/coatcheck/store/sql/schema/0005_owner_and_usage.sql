-- Whose a job is, and what jobs have used.
--
-- `owner` is `*` for a job that anyone may read, and empty for one that is nobody's in particular:
-- its organisation's admins may read it. `run_seconds` is the time in the handler over all
-- attempts so far; the attempt that ends the job is added as it ends.

ALTER TABLE jobs
    ADD COLUMN run_seconds real NOT NULL DEFAULT 0,
    ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';

-- An alert tells that a job has failed with no attempt left. It is written by the statement that
-- fails the job.
ALTER TABLE job_events
    DROP CONSTRAINT job_events_kind_check,
    ADD CONSTRAINT job_events_kind_check
        CHECK (kind IN ('log', 'text', 'json', 'binary', 'alert'));

-- Usage. Whatever statement ends jobs adds what they used to `usage_deltas`, a row for each group of
-- them: the end of a job is fenced and happens once, and so does its row. Rows are only ever added,
-- so no two finishes wait for each other. The roll-up moves them into `usage`, a statement at a
-- time; the two tables together are always exact.

CREATE TABLE usage_deltas (
    org_id        text COLLATE "C" NOT NULL,
    seq           bigint GENERATED ALWAYS AS IDENTITY,
    day           date NOT NULL,
    completed     integer NOT NULL,
    failed        integer NOT NULL,
    cancelled     integer NOT NULL,
    attempts      bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    result_bytes  bigint NOT NULL,
    run_seconds   double precision NOT NULL,
    endpoint      text COLLATE "C" NOT NULL,
    flow          text COLLATE "C" NOT NULL,
    PRIMARY KEY (org_id, seq)
);

CREATE TABLE usage (
    org_id        text COLLATE "C" NOT NULL,
    day           date NOT NULL,
    completed     bigint NOT NULL,
    failed        bigint NOT NULL,
    cancelled     bigint NOT NULL,
    attempts      bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    result_bytes  bigint NOT NULL,
    run_seconds   double precision NOT NULL,
    endpoint      text COLLATE "C" NOT NULL,
    flow          text COLLATE "C" NOT NULL,
    PRIMARY KEY (org_id, day, endpoint, flow)
);

-- The roll-up empties one and changes the other all the time: neither may gather dead rows.
ALTER TABLE usage_deltas SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);
ALTER TABLE usage SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000
);

-- What lists of jobs walk: an owner's jobs of a service that have ended, newest first, however much
-- history others have. The service is the first part of the endpoint's name; the jobs of http
-- upstreams share an endpoint, and there it is the first part of the flow.
--
-- By hashes, so that its keys are short and of fixed width: every finish adds an entry, and pays for
-- it. Readers compare the names as well. Live jobs are not in it: each change of a job is a new entry
-- in every index that has it, and handing jobs in would pay, too.
CREATE INDEX jobs_ended ON jobs (
    hashtextextended(
        split_part(CASE endpoint WHEN 'gateway.post__http' THEN flow ELSE endpoint END, '.', 1)
            || org_id,
        0
    ),
    hashtext(owner), state, id
) WHERE state IN ('completed', 'failed', 'cancelled');

-- And one organisation's jobs that wait for their time: few come this way.
CREATE INDEX jobs_postponed ON jobs (org_id, endpoint, id)
    WHERE state IN ('staged', 'retrying');
