-- What a handler says while it runs: log lines, and output chunks of three kinds, in order, so that
-- a reader can resume after the last `seq` it saw. Progress is not here: only its latest value
-- counts, and that is on the job. `batch` is the statement that wrote the row: one whose answer was
-- lost is looked for by it before it is sent again.

CREATE TABLE job_events (
    org_id   text COLLATE "C" NOT NULL,
    job_id   uuid NOT NULL,
    seq      bigint GENERATED ALWAYS AS IDENTITY,
    kind     text NOT NULL CHECK (kind IN ('log', 'text', 'json', 'binary')),
    data     bytea NOT NULL,
    batch    bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, job_id, seq)
);

-- Which database this is. The blobs of its jobs are named by it, so that two databases that share a
-- container never take each other's blobs for orphans.

CREATE TABLE deployment (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid()
);
INSERT INTO deployment DEFAULT VALUES;

-- Files that a job made. The bytes are in the blob store under `blob_key`; a row exists only once
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

-- What the sweeper asks: whether a blob that names this job is still wanted.
CREATE INDEX artifacts_job ON artifacts (job_id);
