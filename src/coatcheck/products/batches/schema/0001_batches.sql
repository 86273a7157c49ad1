-- Batches: many inputs for one endpoint, each of them a task. A batch is a group of runs
-- (core/0007_runs.sql); a run has parts, and a part is one source of tasks: a list that was submitted
-- or staged, or the tasks of an earlier run.

CREATE TABLE batches (
    org_id          text COLLATE "C" NOT NULL,
    id              uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    -- What was called, as its caller named it, and the engine's endpoint that does it.
    service         text NOT NULL,
    service_endpoint text NOT NULL,
    endpoint        text COLLATE "C" NOT NULL,
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

-- Which task of which run has a position, for the tasks of later runs that are not `mirrored`.

CREATE TABLE batch_positions (
    org_id     text COLLATE "C" NOT NULL,
    batch_id   uuid NOT NULL,
    position   integer NOT NULL,
    run_number integer NOT NULL,
    run_id     uuid NOT NULL,
    task_index integer NOT NULL,
    -- Which run has a position's latest task: one look at the end of a short range.
    PRIMARY KEY (org_id, batch_id, position, run_number)
);

-- The position of a task.
CREATE UNIQUE INDEX batch_positions_task ON batch_positions (org_id, run_id, task_index)
    INCLUDE (position);

-- How far each source was ingested. `source_offset`, `lines` and `tasks` move together, with the
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
    -- Of a rerun of the whole batch: the latest tasks of runs that are numbered below this.
    source_before integer,
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
-- What of a run is not ingested yet: few, however many there were.
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
    -- Of the batch as a whole, as of its run `run_id` and those before it.
    all_runs      boolean NOT NULL DEFAULT false,
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
