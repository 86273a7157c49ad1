-- Batches: a job of many tasks. A batch has runs, a run has parts, a part is one source of tasks: a
-- list that was handed in or staged, or the tasks of the run before.
--
-- A task is a row of `jobs` with the run it belongs to. Its id is computed from the run and its
-- number, so that a page of tasks in order is read by primary key, and a list that is taken in twice
-- writes no task twice. Its flow begins with its run, which is how runs are fair to each other.
--
-- A task that has ended keeps its payload, because a rerun takes it from there, and has no end of
-- its own: tasks go when their batch does.

ALTER TABLE jobs
    ADD COLUMN task_index integer,
    -- 1: its end is told by webhook; 3: its failure is, to the webhook of its batch.
    ADD COLUMN webhook smallint,
    ADD COLUMN run_id uuid,
    ADD COLUMN custom_id text;

ALTER TABLE jobs
    DROP CONSTRAINT terminal_rows_are_settled_and_empty,
    ADD CONSTRAINT terminal_rows_are_settled_and_empty CHECK (
        state NOT IN ('completed', 'failed', 'cancelled')
        OR (
            finished_at IS NOT NULL AND expires_at IS NOT NULL
            AND (payload IS NULL OR run_id IS NOT NULL)
        )
    ),
    ADD CONSTRAINT tasks_are_numbered CHECK ((run_id IS NULL) = (task_index IS NULL));

-- Lists of jobs, and the pruner, have nothing to do with tasks: their indexes do without them.
DROP INDEX jobs_ended;
CREATE INDEX jobs_ended ON jobs (
    hashtextextended(
        split_part(CASE endpoint WHEN 'gateway.post__http' THEN flow ELSE endpoint END, '.', 1)
            || org_id,
        0
    ),
    hashtext(owner), state, id
) WHERE state IN ('completed', 'failed', 'cancelled') AND run_id IS NULL;

DROP INDEX jobs_expired;
CREATE INDEX jobs_expired ON jobs (expires_at)
    WHERE expires_at < 'infinity';

-- A run's tasks that have ended one way, in order.
CREATE INDEX jobs_run_ended ON jobs (org_id, run_id, state, task_index)
    WHERE run_id IS NOT NULL AND state IN ('completed', 'failed', 'cancelled');

-- Those that run now: so many as there are slots. By state and not by lease, or the planner would
-- take jobs_held, and read what everybody holds. The lease is for the writer: what one claim takes
-- then lands on one page, and not among all the dead entries of the run.
CREATE INDEX jobs_run_held ON jobs (org_id, run_id, lease)
    WHERE run_id IS NOT NULL
      AND state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested');

-- Those that wait to be tried again.
CREATE INDEX jobs_run_postponed ON jobs (org_id, run_id, task_index)
    WHERE run_id IS NOT NULL AND state IN ('staged', 'retrying');

-- What the statements that end jobs write down anyway counts a run's tasks, too: a row for each group
-- of them. The roll-up adds them to the run; whoever reads a run adds what is left of them.
ALTER TABLE usage_deltas ADD COLUMN run_id uuid;
CREATE INDEX usage_deltas_run ON usage_deltas (org_id, run_id) WHERE run_id IS NOT NULL;

CREATE TABLE batches (
    org_id          text COLLATE "C" NOT NULL,
    id              uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    -- What was called, as its caller named it, and the engine's endpoint that does it.
    service         text NOT NULL,
    service_endpoint text NOT NULL,
    endpoint        text COLLATE "C" NOT NULL,
    -- The flow that its tasks' usage is summed up under; their own would be a sum for each run.
    usage_flow      text COLLATE "C" NOT NULL DEFAULT '',
    lane            job_lane NOT NULL,
    failures_max    smallint NOT NULL,
    is_open         boolean NOT NULL,
    -- What stands before and after each task's input in its payload.
    payload_prefix  bytea NOT NULL DEFAULT '',
    payload_suffix  bytea NOT NULL DEFAULT '',
    concurrency     integer CHECK (concurrency > 0),
    rate_per_second double precision CHECK (rate_per_second > 0),
    rate_key        text,
    rate_key_per_second double precision CHECK (rate_key_per_second > 0),
    webhook_target  uuid,
    webhook_events  text[] NOT NULL DEFAULT '{}',
    metadata        bytea,
    keep_seconds    integer NOT NULL,
    idempotency_key text COLLATE "C",
    fingerprint     bytea,
    request_id      text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    current_run     uuid NOT NULL,
    -- When its run has ended, and when it is to go; neither while it goes on.
    completed_at    timestamptz,
    expires_at      timestamptz,
    -- Nobody sees it any more, and its tasks are being removed.
    deleted_at      timestamptz,
    PRIMARY KEY (org_id, id)
);

CREATE UNIQUE INDEX batches_idempotency ON batches (org_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- A list of one caller's batches, newest first.
CREATE INDEX batches_owned ON batches (org_id, owner, id) WHERE deleted_at IS NULL;
CREATE INDEX batches_expired ON batches (expires_at)
    WHERE expires_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX batches_deleted ON batches (deleted_at) WHERE deleted_at IS NOT NULL;

-- `tasks` is how many were written, which is the next one's number: every chunk of a list moves it
-- from what it was, in the transaction that writes the chunk, so that no chunk is written twice.
-- `total` is set, absolutely, by the statement that latches the run: from then on it may complete.

CREATE TABLE batch_runs (
    org_id          text COLLATE "C" NOT NULL,
    id              uuid NOT NULL,
    batch_id        uuid NOT NULL,
    number          integer NOT NULL,
    parent_run      uuid,
    -- What a rerun took of its parent: {"status": [...], "error_code": [...]}.
    selection       jsonb,
    tasks           integer NOT NULL DEFAULT 0,
    lines           bigint NOT NULL DEFAULT 0,
    bad_lines       bigint NOT NULL DEFAULT 0,
    total           integer,
    succeeded       integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    cancelled       integer NOT NULL DEFAULT 0,
    -- How many successes were told by webhook.
    succeeded_told  integer NOT NULL DEFAULT 0,
    succeeded_told_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    closed_at       timestamptz,
    latched_at      timestamptz,
    cancel_requested_at timestamptz,
    completed_at    timestamptz,
    PRIMARY KEY (org_id, id),
    CONSTRAINT latched_with_a_total CHECK ((latched_at IS NULL) = (total IS NULL)),
    CONSTRAINT completed_when_counted CHECK (
        completed_at IS NULL OR (total IS NOT NULL AND succeeded + failed + cancelled = total)
    )
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX batch_runs_of ON batch_runs (org_id, batch_id, number);
-- What is looked for again and again: those that go on, those of them that may complete, and those
-- that are open.
CREATE INDEX batch_runs_latched ON batch_runs (org_id, id)
    WHERE completed_at IS NULL AND latched_at IS NOT NULL;
CREATE INDEX batch_runs_open ON batch_runs (created_at) WHERE closed_at IS NULL;
CREATE INDEX batch_runs_live ON batch_runs (org_id, id) WHERE completed_at IS NULL;

-- How far each source was taken in. `source_offset`, `lines` and `tasks` move together, with the
-- chunk that they tell of. For a rerun the offset is the parent's next task.

CREATE TABLE batch_parts (
    org_id        text COLLATE "C" NOT NULL,
    id            uuid NOT NULL,
    batch_id      uuid NOT NULL,
    run_id        uuid NOT NULL,
    position      integer NOT NULL,
    source        text NOT NULL CHECK (source IN ('inline', 'upload', 'pieces', 'rerun')),
    source_key    text,
    source_pieces integer,
    source_bytes  bigint,
    -- What the store calls this very content: an upload may be put again before it is read.
    source_etag   text,
    upload_id     uuid,
    -- Which run a rerun takes from, and what of it, where that is not its own run's parent.
    source_run    uuid,
    source_selection jsonb,
    idempotency_key text COLLATE "C",
    fingerprint   bytea,
    state         text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'failed')),
    source_offset bigint NOT NULL DEFAULT 0,
    lines         bigint NOT NULL DEFAULT 0,
    bad_lines     bigint NOT NULL DEFAULT 0,
    tasks         integer NOT NULL DEFAULT 0,
    -- The engine's job that takes it in, and how many there were before it.
    ingest_job    uuid,
    redrives      integer NOT NULL DEFAULT 0,
    error_code    text,
    error_message text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX batch_parts_of ON batch_parts (org_id, run_id, position);
CREATE UNIQUE INDEX batch_parts_idempotency ON batch_parts (org_id, batch_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- What of a run is not taken in yet: few, however many there were.
CREATE INDEX batch_parts_left ON batch_parts (org_id, run_id, position) WHERE state <> 'done';
-- What the reconciler walks, and the list of those that failed.
CREATE INDEX batch_parts_pending ON batch_parts (updated_at) WHERE state = 'pending';
CREATE INDEX batch_parts_failed ON batch_parts (org_id, id) WHERE state = 'failed';
-- What the sweeper asks: whether a list that names this part is still wanted.
CREATE INDEX batch_parts_list ON batch_parts (id) WHERE source_key IS NOT NULL;

-- The lines that are no tasks, by number; the first of them, the rest is counted.
CREATE TABLE batch_bad_lines (
    org_id  text COLLATE "C" NOT NULL,
    part_id uuid NOT NULL,
    line    bigint NOT NULL,
    code    text NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (org_id, part_id, line)
);

CREATE TABLE batch_exports (
    org_id        text COLLATE "C" NOT NULL,
    id            uuid NOT NULL,
    batch_id      uuid NOT NULL,
    run_id        uuid NOT NULL,
    state         text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'completed', 'failed')),
    export_job    uuid,
    blob_key      text,
    bytes         bigint,
    sha256        bytea,
    tasks_written integer NOT NULL DEFAULT 0,
    error_code    text,
    error_message text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    completed_at  timestamptz,
    expires_at    timestamptz,
    PRIMARY KEY (org_id, id),
    CONSTRAINT completed_exports_are_whole CHECK (
        (state = 'completed')
        = (blob_key IS NOT NULL AND bytes IS NOT NULL AND sha256 IS NOT NULL)
    )
);

CREATE INDEX batch_exports_of ON batch_exports (org_id, batch_id, id);
CREATE INDEX batch_exports_expired ON batch_exports (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX batch_exports_pending ON batch_exports (created_at) WHERE state = 'pending';
-- What the sweeper asks: whether a blob that names this export is still wanted.
CREATE INDEX batch_exports_blob ON batch_exports (id) WHERE blob_key IS NOT NULL;

-- Lists that callers stage before they hand a batch in.
CREATE TABLE batch_uploads (
    org_id     text COLLATE "C" NOT NULL,
    id         uuid NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    blob_key   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    batch_id   uuid,
    PRIMARY KEY (org_id, id)
);

CREATE INDEX batch_uploads_expired ON batch_uploads (expires_at);
-- What the sweeper asks, by the upload that a blob names.
CREATE INDEX batch_uploads_blob ON batch_uploads (id);
