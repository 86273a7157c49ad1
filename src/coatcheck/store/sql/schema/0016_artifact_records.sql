-- What remains known of an artifact that is gone: what it was, when it was stored, and when and by
-- what it was deleted. It outlives its job: the receipt is wanted when all else is gone.
--
-- The statement that deletes an artifact's row opens its record; then the blob is deleted; then the
-- record is closed. What it says is left may be gone already, and what it says is gone is gone.

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
    mechanism    text NOT NULL
        CHECK (mechanism IN ('retention', 'owner', 'replaced', 'batch_removed')),
    PRIMARY KEY (org_id, job_id, seq)
);

-- What the keeper walks: the few whose blob may still be there, however long the history.
CREATE INDEX artifact_records_left ON artifact_records (deleting_at, seq) WHERE deleted_at IS NULL;

-- What it walks in the end.
CREATE INDEX artifact_records_old ON artifact_records (deleted_at) WHERE deleted_at IS NOT NULL;
