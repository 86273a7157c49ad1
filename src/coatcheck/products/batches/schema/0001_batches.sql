-- Batches: many inputs for one endpoint, each of them a task. A batch is a group of runs
-- (core/schema/0007_runs.sql); a run has parts, and a part is one source of tasks: a list that was submitted
-- or staged, or the tasks of an earlier run.

CREATE TABLE batches (
    org_id          text COLLATE "C" NOT NULL,
    id              uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    -- The service and the endpoint that the caller named, and the engine's endpoint that runs them.
    service         text NOT NULL,
    service_endpoint text NOT NULL,
    endpoint        text COLLATE "C" NOT NULL,
    lane            job_lane NOT NULL,
    failures_max    smallint NOT NULL,
    is_open         boolean NOT NULL,
    -- The bytes before and after each task's input in its payload.
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
    -- When its current run ended, and when the batch expires; both NULL until the run ends.
    completed_at    timestamptz,
    expires_at      timestamptz,
    -- From this time on, callers cannot read the batch, and maintenance removes its tasks.
    deleted_at      timestamptz,
    PRIMARY KEY (org_id, id)
);

CREATE UNIQUE INDEX batches_idempotency ON batches (org_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- For the list of one owner's batches, newest first.
CREATE INDEX batches_owned ON batches (org_id, owner, id) WHERE deleted_at IS NULL;
CREATE INDEX batches_expired ON batches (expires_at)
    WHERE expires_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX batches_deleted ON batches (deleted_at) WHERE deleted_at IS NOT NULL;

-- The task of a run that has a position, for tasks of later runs that are not `mirrored`.

CREATE TABLE batch_positions (
    org_id     text COLLATE "C" NOT NULL,
    batch_id   uuid NOT NULL,
    position   integer NOT NULL,
    run_number integer NOT NULL,
    run_id     uuid NOT NULL,
    task_index integer NOT NULL,
    -- The run with the latest task of a position is found at the end of a short range.
    PRIMARY KEY (org_id, batch_id, position, run_number)
);

-- For the position of a task.
CREATE UNIQUE INDEX batch_positions_task ON batch_positions (org_id, run_id, task_index)
    INCLUDE (position);

-- How far each source was ingested. `source_offset`, `lines` and `tasks` advance together, in the
-- transaction that writes the chunk. For a rerun, the offset is the parent's next task.

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
    -- The ETag of the content: a caller may replace an upload before the ingest reads it.
    source_etag   text,
    upload_id     uuid,
    -- The run and the selection that a rerun repeats, if they are not those of its own run.
    source_run    uuid,
    source_selection jsonb,
    -- For a rerun of the whole batch: it repeats the latest tasks of runs with numbers below this.
    source_before integer,
    idempotency_key text COLLATE "C",
    fingerprint   bytea,
    state         text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'failed')),
    source_offset bigint NOT NULL DEFAULT 0,
    lines         bigint NOT NULL DEFAULT 0,
    bad_lines     bigint NOT NULL DEFAULT 0,
    tasks         integer NOT NULL DEFAULT 0,
    -- The internal job that ingests it, and how many jobs there were before.
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
-- The parts of a run that are not ingested yet: few, even if the run has many parts.
CREATE INDEX batch_parts_left ON batch_parts (org_id, run_id, position) WHERE state <> 'done';
-- For the reconciler, and for the list of failed parts.
CREATE INDEX batch_parts_pending ON batch_parts (updated_at) WHERE state = 'pending';
CREATE INDEX batch_parts_failed ON batch_parts (org_id, id) WHERE state = 'failed';
-- For the sweeper, which asks whether the part of a stored list still needs it.
CREATE INDEX batch_parts_list ON batch_parts (id) WHERE source_key IS NOT NULL;

-- Invalid lines by number. Only the first ones are stored; all are counted.
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
    -- Whether it has the tasks of the batch as a whole, as of its run `run_id` and those before it.
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
-- For the sweeper, which asks whether the export of a blob still needs it.
CREATE INDEX batch_exports_blob ON batch_exports (id) WHERE blob_key IS NOT NULL;
