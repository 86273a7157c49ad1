-- The events of running jobs, the files that they produce, and their input files and uploads.

-- The identity of this database. The keys of its blobs contain it, so that two databases that share a
-- container never take each other's blobs for orphans. `callback_key` signs the URLs by which remote
-- services call back: servers and workers read it here.

CREATE TABLE deployment (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    callback_key bytea NOT NULL DEFAULT decode(
        replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'
    )
);
INSERT INTO deployment DEFAULT VALUES;

-- The output of a handler while it runs: log lines, and output chunks of three kinds, in order, so that a
-- reader can resume after the last `seq` it saw. Progress is not here: only its latest value counts, and
-- that is on the job.
--
-- The engine writes two kinds, with the statement that changes the job's state: an `attempt` that did not
-- complete, and the `alert` that a job has failed with no attempt left.
--
-- `write_id` identifies the statement that wrote the row: if its answer was lost, it is looked up by this
-- before it is sent again.

CREATE TABLE job_events (
    org_id   text COLLATE "C" NOT NULL,
    job_id   uuid NOT NULL,
    seq      bigint GENERATED ALWAYS AS IDENTITY,
    kind     text NOT NULL CHECK (kind IN ('log', 'text', 'json', 'binary', 'alert', 'attempt')),
    data     bytea NOT NULL,
    write_id bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, job_id, seq)
);

-- A job's attempts, however much output it has.
CREATE INDEX job_events_attempts ON job_events (org_id, job_id, seq) WHERE kind = 'attempt';

-- Files that a job produced. The bytes are in the blob store under `blob_key`; a row exists only once
-- they are all there.

CREATE TABLE artifacts (
    org_id      text COLLATE "C" NOT NULL,
    job_id      uuid NOT NULL,
    name        text COLLATE "C" NOT NULL,
    blob_key    text NOT NULL,
    media_type  text NOT NULL,
    bytes       bigint NOT NULL,
    sha256      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, job_id, name)
);

-- The sweeper looks up here whether a blob of this job is still needed.
CREATE INDEX artifacts_job ON artifacts (job_id);

-- The record of a deleted artifact: what it was, when it was stored, and when and by what it was deleted.
-- It outlives its job, because a receipt is needed when everything else is deleted.
--
-- The statement that deletes an artifact's row opens its record; then the blob is deleted; then the
-- record is closed. So a blob of an open record may already be deleted; one of a closed record is.

CREATE TABLE artifact_records (
    org_id       text COLLATE "C" NOT NULL,
    job_id       uuid NOT NULL,
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    name         text COLLATE "C" NOT NULL,
    owner        text COLLATE "C" NOT NULL,
    endpoint     text COLLATE "C" NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    media_type   text NOT NULL,
    bytes        bigint NOT NULL,
    sha256       bytea NOT NULL,
    blob_key     text NOT NULL,
    stored_at    timestamptz NOT NULL,
    deleting_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    -- `retention`, `owner`, `replaced`; or the word of the product that deleted its job.
    mechanism    text NOT NULL,
    PRIMARY KEY (org_id, job_id, seq)
);

-- The few whose blob may still exist, however long the history.
CREATE INDEX artifact_records_left ON artifact_records (deleting_at, seq) WHERE deleted_at IS NULL;

-- Finds expired records.
CREATE INDEX artifact_records_old ON artifact_records (deleted_at) WHERE deleted_at IS NOT NULL;

-- Files that jobs were submitted with. The bytes are in the blob store, in pieces under `blob_key`; this
-- is their record. It outlives its job, because a receipt is needed when everything else is deleted.

CREATE TABLE job_inputs (
    org_id      text COLLATE "C" NOT NULL,
    job_id      uuid NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    endpoint    text COLLATE "C" NOT NULL,
    sha256      bytea NOT NULL CHECK (octet_length(sha256) = 32),
    bytes       bigint NOT NULL CHECK (bytes >= 0),
    pieces      integer NOT NULL CHECK (pieces >= 0),
    blob_key    text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    forget_at   timestamptz NOT NULL,
    PRIMARY KEY (org_id, job_id)
);

-- Finds expired records.
CREATE INDEX job_inputs_forget ON job_inputs (forget_at);

-- Every copy of those bytes, and of the pointer to them, from when it was stored to when and by what it
-- was deleted. A row is written before, or in one commit with, what makes the copy reachable, and is
-- closed after the copy is deleted: so a copy with an open row may already be deleted; one with a closed
-- row is.

CREATE TABLE input_copies (
    org_id     text COLLATE "C" NOT NULL,
    job_id     uuid NOT NULL,
    layer      text NOT NULL CHECK (layer IN ('blob', 'disk', 'database')),
    place      text COLLATE "C" NOT NULL,
    stored_at  timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    deleted_at timestamptz,
    mechanism  text CHECK (mechanism IN ('worker', 'upkeep', 'ttl', 'sweep', 'end_of_job')),
    PRIMARY KEY (org_id, job_id, layer, place),

    CONSTRAINT deleted_by_something CHECK ((deleted_at IS NULL) = (mechanism IS NULL)),
    CONSTRAINT blobs_expire CHECK (layer <> 'blob' OR expires_at IS NOT NULL)
);

-- Maintenance walks it, and a worker that cleans up after dead workers of its machine: the few copies
-- that are not deleted yet, however long the history.
CREATE INDEX input_copies_left ON input_copies (layer, expires_at, org_id, job_id)
    WHERE deleted_at IS NULL;

-- The sweeper looks up here whether a blob of this job is still needed.
CREATE INDEX input_copies_job ON input_copies (job_id)
    WHERE layer = 'blob' AND deleted_at IS NULL;

-- Files that callers upload by a signed URL before they submit what reads them. `used_by` is the id of
-- the reader, opaque here; an upload is used once. `released_at`: the reader has read the file to its
-- end, and needs it no more.

CREATE TABLE uploads (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    blob_key    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    used_by     uuid,
    released_at timestamptz,
    PRIMARY KEY (org_id, id)
);

CREATE INDEX uploads_expired ON uploads (expires_at);
-- The sweeper looks up an upload by the id in a blob's key.
CREATE INDEX uploads_blob ON uploads (id);
