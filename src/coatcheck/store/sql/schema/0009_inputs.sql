-- What jobs were handed in with. The bytes are in the blob store, in pieces under `blob_key`; this
-- is what remains known of them. It outlives its job: the receipt is wanted when all else is gone.

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

-- What the forgetter walks in the end.
CREATE INDEX job_inputs_forget ON job_inputs (forget_at);

-- Every copy of those bytes, and of what leads to them, from when it was stored to when and by what
-- it was deleted. A row is written before, or in one commit with, what makes the copy reachable, and
-- is closed after the copy is gone: what the table says is left may be gone already, and what it
-- says is gone is gone.

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

-- What the forgetter walks, and a worker that looks for what the dead of its machine left: the few
-- that are not deleted yet, however long the history.
CREATE INDEX input_copies_left ON input_copies (layer, expires_at, org_id, job_id)
    WHERE deleted_at IS NULL;

-- What the sweeper asks: whether a blob that names this job is still wanted.
CREATE INDEX input_copies_job ON input_copies (job_id)
    WHERE layer = 'blob' AND deleted_at IS NULL;
