-- The speech product: voices and generations, visible to their own user only.
--
-- Reads on behalf of a user run under the role coatcheck_user, with the user set for the transaction
-- (products/speech/repository.py). The policies below extend those of core/schema/0012_row_security.sql.

-- Reference audio. The row is created before the upload, and is visible once the upload is complete
-- (ready_at). A voice that its user deleted, and an upload that was never completed, are removed together
-- with their blobs (products/speech/maintenance.py).
CREATE TABLE voices (
    org_id            text COLLATE "C" NOT NULL,
    id                uuid NOT NULL,
    user_id           text COLLATE "C" NOT NULL,
    blob_key          text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    ready_at          timestamptz,
    deleted_at        timestamptz,
    bytes             bigint,
    sha256            bytea,
    duration_seconds  double precision,
    PRIMARY KEY (org_id, id),

    CONSTRAINT ready_as_a_whole CHECK (
        ready_at IS NULL
        OR (bytes IS NOT NULL AND sha256 IS NOT NULL AND duration_seconds IS NOT NULL)
    )
);

-- For a user's list of voices.
CREATE INDEX voices_of_user ON voices (org_id, user_id, id)
    WHERE ready_at IS NOT NULL AND deleted_at IS NULL;

-- For the cleanup: the few voices whose row and blob are due for removal.
CREATE INDEX voices_to_remove ON voices (coalesce(deleted_at, created_at))
    WHERE ready_at IS NULL OR deleted_at IS NOT NULL;

-- The text of a task, and the voice that speaks it. One statement creates it together with its job, which
-- has the state and the result, and it is deleted with the job. The job's endpoint says which kind of
-- work it is: a text that is spoken, a preview of a voice that is only described, or a clone of a voice.
--
-- `voice_id` is NULL for a preview, which has a `description` instead; `clone_id` is the job that made
-- the clone that speaks the text. The `text` of a clone is the transcript of the recording, or empty.
CREATE TABLE generations (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    job_id      uuid NOT NULL,
    voice_id    uuid,
    language    text NOT NULL,
    text        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    description text,
    clone_id    uuid,
    PRIMARY KEY (org_id, id),
    CONSTRAINT spoken_by_a_voice_or_a_description
        CHECK ((voice_id IS NULL) = (description IS NOT NULL))
);

-- A job has one generation. The index also serves its deletion with the job.
CREATE UNIQUE INDEX generations_job ON generations (org_id, job_id);

-- For a user's lists of tasks and generations.
CREATE INDEX generations_of_user ON generations (org_id, user_id, id);

ALTER TABLE voices ENABLE ROW LEVEL SECURITY;
ALTER TABLE generations ENABLE ROW LEVEL SECURITY;

CREATE POLICY everybody ON voices USING (true) WITH CHECK (true);
CREATE POLICY everybody ON generations USING (true) WITH CHECK (true);

CREATE POLICY own_rows ON voices AS RESTRICTIVE TO coatcheck_user USING (
    org_id = nullif(current_setting('coatcheck.org', true), '')
    AND user_id = nullif(current_setting('coatcheck.user', true), '')
);
CREATE POLICY own_rows ON generations AS RESTRICTIVE TO coatcheck_user USING (
    org_id = nullif(current_setting('coatcheck.org', true), '')
    AND user_id = nullif(current_setting('coatcheck.user', true), '')
);

GRANT SELECT ON voices, generations TO coatcheck_user;
