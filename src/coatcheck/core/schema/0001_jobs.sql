-- The job table: queue, state machine and result store in one.
--
-- Tenancy. Every primary key and unique constraint begins with org_id, so the tables can be
-- distributed by org_id on Citus without a change; `workers` holds no tenant data and would be a
-- reference table there. For the same reason there are no foreign keys.
--
-- Ids. 128 bits, stored as uuid (16 bytes). People see them as ULIDs (see domain/ids.py).
--
-- Leases. `lease` is (worker boot << 40 | claim number): it names its holder, is fresh for every
-- claim, and is NULL in every state nobody holds. Fenced writes compare it and nothing else:
-- adding the state to their WHERE made the planner leave the primary key.
--
-- Payload and result are bytea: JSON goes in and comes out byte for byte (integers stay integers),
-- and the server spends no time parsing what it will not look into.
--
-- Inputs. A completed job drops its payload. One that fails or is cancelled keeps it until it
-- expires, so that it can be retried, unless `keeps_input` is false. A retry is a new job, because a
-- terminal state is final; `retry_of` names the job that it retries.
--
-- Indexes of `jobs` name no column that changes. What finds a job by its state, its lease or a time are
-- tables beside it, written by the statements that change the job; `jobs` decides, and readers compare
-- (docs/adr/0061).
--
-- Tasks. A job with a `run_id` is a task: one of many that run as a group (0007_runs.sql). Its id is
-- computed from the run and its `task_index`, so that a page of tasks in order is read by primary
-- key, and a list that is ingested twice writes no task twice. Its flow begins with its run's id,
-- which is how runs are fair to each other. A task keeps its payload when it ends, because a rerun
-- takes it from there, and never expires by itself: tasks are deleted with their group.
--
-- Columns. First those of indexes, because each update compares them; then what seldom changes; last what a
-- claim and an end write, together, because an update logs a row from its first changed byte to its last.
--
-- Expiry. `expires_at` says until when an ended job is kept; retention finds it by `job_expiries`,
-- below. Only the statement that ends a job sets it.

CREATE TYPE job_state AS ENUM (
    'staged', 'queued', 'dispatching', 'processing', 'finalizing',
    'retrying', 'cancel_requested', 'completed', 'failed', 'cancelled'
);

CREATE TYPE job_lane AS ENUM ('urgent', 'standard', 'bulk');

CREATE TABLE jobs (
    id                uuid NOT NULL,
    org_id            text COLLATE "C" NOT NULL,
    endpoint          text COLLATE "C" NOT NULL,
    flow              text COLLATE "C" NOT NULL,
    -- `*`: anyone of the organisation may read the job; empty: only its admins.
    owner             text COLLATE "C" NOT NULL DEFAULT '',
    idempotency_key   text COLLATE "C",
    run_id            uuid,
    retry_of          uuid,
    created_at        timestamptz NOT NULL DEFAULT now(),
    run_at            timestamptz NOT NULL DEFAULT now(),
    failures_max      smallint NOT NULL,
    failures          smallint NOT NULL DEFAULT 0,
    crashes           smallint NOT NULL DEFAULT 0,
    interruptions     smallint NOT NULL DEFAULT 0,
    unreachables      smallint NOT NULL DEFAULT 0,
    lane              job_lane NOT NULL,
    keeps_input       boolean NOT NULL DEFAULT true,
    start_deadline    timestamptz,
    timeout_seconds   real,
    keep_completed_seconds integer,
    keep_failed_seconds    integer,
    progress          real,
    -- Which of the job's state changes webhooks report: 0008_webhooks.sql has the codes.
    webhook           smallint,
    task_index        integer,
    fingerprint       bytea,
    -- The caller's id of a task.
    custom_id         text,
    request_id        text,
    -- A W3C traceparent, if the submission was traced.
    traceparent       text,
    -- The remote service's id of the work (0009_remote_calls.sql).
    execution_id      text,
    progress_note     text,
    error_code        text,
    error_message     text,
    state             job_state NOT NULL DEFAULT 'queued',
    -- Time in the handler over all attempts so far; the attempt that ends the job adds its own.
    run_seconds       real NOT NULL DEFAULT 0,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    lease             bigint,
    dispatched_at     timestamptz,
    run_deadline      timestamptz,
    started_at        timestamptz,
    finished_at       timestamptz,
    expires_at        timestamptz,
    payload           bytea,
    result            bytea,

    PRIMARY KEY (org_id, id),

    CONSTRAINT lease_held_exactly_while_running CHECK (
        (lease IS NOT NULL)
        = (state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested'))
    ),
    CONSTRAINT terminal_rows_are_settled_and_empty CHECK (
        state NOT IN ('completed', 'failed', 'cancelled')
        OR (
            finished_at IS NOT NULL AND expires_at IS NOT NULL
            AND (payload IS NULL OR run_id IS NOT NULL OR (keeps_input AND state <> 'completed'))
        )
    ),
    CONSTRAINT tasks_are_numbered CHECK ((run_id IS NULL) = (task_index IS NULL))
) WITH (
    -- Room on each page for the two updates that each job gets: no index has a column that changes, so they
    -- stay on the page (HOT), touch no index, and the next one removes what they leave
    -- (docs/adr/0061). Vacuum by count, not by share of a table that keeps its history.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 1
);

-- One idempotency key, one job. Also what a repeated POST looks up before its body is read.
CREATE UNIQUE INDEX jobs_idempotency ON jobs (org_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

-- Where claims find queued jobs. A row names the jobs that one statement queued in one flow, up to 64
-- of them, in the order of their ids: so a job costs the queue a share of a row and of an index entry,
-- when it is queued and again when it is claimed (docs/adr/0060).
--
-- `jobs.state` decides whether a job is queued. Every queued job is named by one row, with its own lane,
-- endpoint, flow and run_at; whoever queues a job writes the row in the same statement or transaction
-- (queue/add). A row may also name a job that is not queued any more, such as one that was cancelled
-- while a claim had locked the row: the next claim that meets it leaves it out.
--
-- A claim locks rows and then their jobs, and waits for neither. Whoever takes jobs out of the queue in
-- another way locks the jobs first, and skips a row that is locked.
CREATE TABLE queue (
    org_id   text COLLATE "C" NOT NULL,
    -- The last of `ids`. Claims take them from the front, so a row keeps its key.
    id       uuid NOT NULL,
    lane     job_lane NOT NULL,
    endpoint text COLLATE "C" NOT NULL,
    flow     text COLLATE "C" NOT NULL,
    run_at   timestamptz NOT NULL DEFAULT now(),
    ids      uuid[] NOT NULL,
    -- So that a job can be queued again whatever an older row still says of it.
    seq      bigint GENERATED ALWAYS AS IDENTITY,

    PRIMARY KEY (org_id, id, seq),

    CONSTRAINT a_row_is_known_by_its_last_job CHECK (id = ids[cardinality(ids)])
) WITH (
    fillfactor = 70,
    -- Rows live for moments, and every claim steps over the dead ones.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

-- The claim walks it: the flows of an endpoint that have work, then each flow's oldest rows. `endpoint`
-- comes before `org_id` because a worker asks only for the endpoints it serves.
CREATE INDEX queue_order ON queue (lane, endpoint, org_id, flow, run_at, id);

-- The jobs that wait for a time: those that are staged or retrying. Few jobs pass through these states,
-- so each has a row of its own, with what readers would otherwise look up.
--
-- `jobs` decides. Every staged or retrying job has its row, with the job's run_at: whoever makes it one,
-- or gives it another time, writes the row in the same statement (postponed/add). So does who takes it
-- out of these states delete it (postponed/leave). The lock of the job is taken first, and nobody locks
-- a row without it. A statement that waited for that lock may not see a row that was written meanwhile,
-- and leaves it behind: it is deleted once it is due, and readers that show jobs compare their states.
CREATE TABLE postponed (
    org_id     text COLLATE "C" NOT NULL,
    id         uuid NOT NULL,
    run_at     timestamptz NOT NULL,
    state      job_state NOT NULL,
    lane       job_lane NOT NULL,
    task_index integer,
    run_id     uuid,
    endpoint   text COLLATE "C" NOT NULL,
    error_code text,

    PRIMARY KEY (org_id, id)
) WITH (
    -- Rows live until their job is due, and the loop that queues jobs begins where the dead ones are.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

-- The loop that queues due jobs walks it.
CREATE INDEX postponed_due ON postponed (run_at);

-- A run's tasks that wait for a retry, in order.
CREATE INDEX postponed_of_run ON postponed (org_id, run_id, task_index) WHERE run_id IS NOT NULL;

-- When to look whether a job has started before its start deadline: a row for each job that has one,
-- written when the job is created (start_deadlines/add), and not touched when it changes. A look comes
-- at the deadline, but within a day, so that the rows of jobs that ended long before theirs do not
-- gather. It deletes the row of a job that has ended; one that runs is looked at again a little later,
-- because it may come back to wait for a retry (maintenance/expire_waiting).
CREATE TABLE start_deadlines (
    org_id text COLLATE "C" NOT NULL,
    id     uuid NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1
);

-- The loop that fails jobs past their start deadline walks it.
CREATE INDEX start_deadlines_due ON start_deadlines (due_at);

-- The service of a job: the first part of its endpoint's name. The jobs of registered http upstreams
-- share an endpoint (UPSTREAM_ENDPOINT of domain/catalogue.py), and there it is the first part of the
-- flow. The planner puts the expression in place of the call, in the index below as in statements.
CREATE FUNCTION job_service(endpoint text, flow text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN split_part(CASE endpoint WHEN /* upstream endpoint */ THEN flow ELSE endpoint END, '.', 1);

-- Lists of jobs walk it: an owner's jobs of a service, newest first, however long the history of others
-- is. Of columns that never change: an entry that names the state would be written with each change.
--
-- By hashes, so that its keys are short and of fixed width: every submission adds an entry, and pays for
-- it. Readers compare the names as well. Tasks are listed with their group.
CREATE INDEX jobs_listed ON jobs (
    hashtextextended(job_service(endpoint, flow) || org_id, 0), hashtext(owner), id
) WHERE run_id IS NULL;

-- The retries of a job.
CREATE INDEX jobs_retries ON jobs (org_id, retry_of) WHERE retry_of IS NOT NULL;

-- Ended jobs by the time when they expire: what retention walks. The statement that ends jobs writes a
-- row for each organisation and time (jobs/record_expiries), and not an index entry for each job. Tasks, which
-- never expire by themselves, are not in it.
--
-- A row has at most 100 jobs, so that it stays below the 2 kB from which values are stored out of line.
CREATE TABLE job_expiries (
    org_id     text COLLATE "C" NOT NULL,
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    expires_at timestamptz NOT NULL,
    ids        uuid[] NOT NULL CHECK (cardinality(ids) BETWEEN 1 AND 100),
    PRIMARY KEY (org_id, seq)
) WITH (
    -- The dead entries of what has expired are where retention begins: vacuum by count, as for jobs.
    -- Analyzed rarely, as claims.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

CREATE INDEX job_expiries_due ON job_expiries (expires_at);

-- The jobs that failed or were cancelled, for lists of them: a walk along jobs_listed would pass all that
-- completed. The statement that ends jobs writes the rows (jobs/record_unsuccessful), and whoever deletes a
-- job deletes its row. Completions, by far the most ends, pay nothing for it. Tasks are not in it.
CREATE TABLE unsuccessful_jobs (
    org_id       text COLLATE "C" NOT NULL,
    id           uuid NOT NULL,
    state        job_state NOT NULL CHECK (state IN ('failed', 'cancelled')),
    -- As in jobs_listed.
    service_hash bigint NOT NULL,
    owner_hash   integer NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- Those of an owner and a service, newest first.
CREATE INDEX unsuccessful_jobs_listed ON unsuccessful_jobs (service_hash, owner_hash, state, id);

-- The ended tasks of runs, for lists of those that ended in a state, in the order of their numbers. The
-- statement that ends tasks writes a row for each run, state and block of 64 numbers (jobs/record_tasks),
-- so tasks that were claimed together cost a share of a row. Whoever deletes tasks deletes the rows.
--
-- A block may have many rows, one for each statement, in any order. Blocks are in order, and none has more
-- than 64 tasks: whoever reads 64 tasks more than wanted has all of those wanted (jobs/ended_tasks). A full
-- row stays below the 2 kB from which values are stored out of line.
CREATE TABLE ended_tasks (
    org_id  text COLLATE "C" NOT NULL,
    run_id  uuid NOT NULL,
    state   job_state NOT NULL CHECK (state IN ('completed', 'failed', 'cancelled')),
    -- The number of a task divided by 64.
    block   integer NOT NULL,
    seq     bigint GENERATED ALWAYS AS IDENTITY,
    -- The numbers of tasks, and their ids in the same order.
    numbers integer[] NOT NULL,
    ids     uuid[] NOT NULL CHECK (cardinality(ids) = cardinality(numbers)),
    PRIMARY KEY (org_id, run_id, state, block, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- Where to look for held jobs: a row for each lease and organisation, with the jobs that were claimed.
--
-- A job is held if its own row has a lease: `jobs` decides, and the fences read nothing else. Every job
-- with a lease is named in the row of that organisation and lease, which the statement that gives the
-- lease also writes (claims/write_claims). The reverse does not hold: a job that has ended or moved on
-- stays named until its row is deleted, and readers compare the leases. An index on `jobs` in place of
-- this table would get an entry with every change of a job, although a reader needs one row per claim.
--
-- A lease is never given twice: once none of its jobs has it, its row can go. The worker that claimed
-- the jobs deletes it with a later exchange; maintenance/sweep_claims deletes what is left.
--
-- `ids` is stored out of line and as it is. Random ids cannot be compressed, and trying more than doubles
-- the cost of a large claim; rows that are short enough to stay in line need five times as many index
-- entries.
CREATE TABLE claims (
    org_id text COLLATE "C" NOT NULL,
    lease  bigint NOT NULL,
    ids    uuid[] STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (org_id, lease)
) WITH (
    -- Rows live as long as their jobs run: it must not gather dead ones. Analyzed rarely: each time,
    -- every session plans anew whatever names the table.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 1
);

-- The claims of a worker, by its boot number; and one of them.
CREATE INDEX claims_held ON claims ((lease >> 40), lease);

-- The jobs that claims name. The planner joins it as a whole, since unnest is in its SELECT: a join of
-- claims and jobs by organisation alone would read the organisation's history. Statements about all
-- organisations ask for `boot >= 0`: it is true of every lease, and an index scan. An EXISTS needs an
-- OFFSET 0: as a join it would read all claims.
CREATE VIEW claimed_jobs AS
SELECT k.org_id, k.lease, k.lease >> 40 AS boot, unnest(k.ids) AS id
FROM claims AS k;

-- The held jobs, for statements that do not lock them. Those that do join claimed_jobs and jobs, and lock
-- the jobs alone. OFFSET 0 has jobs be looked up one by one, also where an organisation is given.
CREATE VIEW held_jobs AS
SELECT k.org_id, k.lease, k.boot, k.id, j.lane, j.state, j.endpoint, j.flow, j.owner, j.run_id,
       j.task_index, j.custom_id, j.failures, j.crashes, j.run_at, j.created_at, j.dispatched_at,
       j.started_at, j.finished_at, j.error_code, j.error_message, j.result
FROM claimed_jobs AS k
CROSS JOIN LATERAL (
    SELECT *
    FROM jobs AS j
    WHERE j.org_id = k.org_id AND j.id = k.id AND j.lease = k.lease
    OFFSET 0
) AS j;
