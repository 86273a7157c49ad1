-- The speech product: voices and generations, each seen by its own user only.
--
-- What the product reads for a user is read under the role coatcheck_user, with the user set for the
-- transaction (products/speech/queries.py): the policies below extend those of the core's 0012_row_security.sql.

-- Reference audio. The row comes before the upload, and is shown once that is whole (ready_at). One
-- that never was, and one that its user deleted, goes together with its blob (products/speech/maintenance.py).
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

-- What a user's list walks.
CREATE INDEX voices_of_user ON voices (org_id, user_id, id)
    WHERE ready_at IS NOT NULL AND deleted_at IS NULL;

-- Those whose row and blob are to be removed: few.
CREATE INDEX voices_to_remove ON voices (coalesce(deleted_at, created_at))
    WHERE ready_at IS NULL OR deleted_at IS NOT NULL;

-- What a task is to say, and by which voice. Created with its job, by one statement; its state and its
-- result are on the job, with which it goes. Which kind of work it is, its job's endpoint says: a text
-- that is spoken, a preview of a voice that is only described, or a clone of a voice.
--
-- `voice_id` is NULL for a preview, which has a `description` instead; `clone_id` is the job that made
-- the clone a text is spoken with. The `text` of a clone is what is said in the recording, or empty.
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

-- A job has one; and it goes with it.
CREATE UNIQUE INDEX generations_job ON generations (org_id, job_id);

-- What a user's lists walk.
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
