-- Voices and generations of the speech surface, and a second wall between their users.
--
-- The first wall is in the statements: each names the organisation and the user. The second one is
-- here. What the surface reads for a user is read under the role coatcheck_user, with the user set
-- for the transaction (store/speech.py), and row-level security shows that role nothing else: with no
-- user set, nothing at all. The tables' owner, which everything else runs as, is not held by it.

DO $$
BEGIN
    -- Roles are the whole server's: another database may have made it, or be making it just now.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'coatcheck_user') THEN
        BEGIN
            CREATE ROLE coatcheck_user NOLOGIN NOINHERIT;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION
                    'the role coatcheck_user is missing, and % may not create it; have an administrator run: CREATE ROLE coatcheck_user NOLOGIN; GRANT coatcheck_user TO %;',
                    quote_ident(current_user), quote_ident(current_user)
                    USING ERRCODE = 'insufficient_privilege';
        END;
    END IF;
    IF EXISTS (
        SELECT FROM pg_roles WHERE rolname = 'coatcheck_user' AND (rolsuper OR rolbypassrls)
    ) THEN
        RAISE EXCEPTION
            'the role coatcheck_user bypasses row-level security; have an administrator run: ALTER ROLE coatcheck_user NOSUPERUSER NOBYPASSRLS;'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT pg_has_role(current_user, 'coatcheck_user', 'SET') THEN
        BEGIN
            EXECUTE format('GRANT coatcheck_user TO %I WITH SET TRUE', current_user);
        EXCEPTION
            WHEN unique_violation THEN
                NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION
                    '% may not act as coatcheck_user; have an administrator run: GRANT coatcheck_user TO %;',
                    quote_ident(current_user), quote_ident(current_user)
                    USING ERRCODE = 'insufficient_privilege';
        END;
    END IF;
    IF NOT has_schema_privilege('coatcheck_user', current_schema(), 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO coatcheck_user', current_schema());
    END IF;
END
$$;

-- Reference audio. The row comes before the upload, and is shown once that is whole (ready_at). One
-- that never was, and one that its user deleted, goes together with its blob (upkeep/voice_keeper.py).
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

-- What the voice keeper walks: few.
CREATE INDEX voices_to_remove ON voices (coalesce(deleted_at, created_at))
    WHERE ready_at IS NULL OR deleted_at IS NOT NULL;

-- What a task is to say, and by whose voice. Created with its job, by one statement; how it stands and
-- what came of it is on the job, with which it goes.
CREATE TABLE generations (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    job_id      uuid NOT NULL,
    voice_id    uuid NOT NULL,
    language    text NOT NULL,
    text        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, id)
);

-- A job has one; and it goes with it.
CREATE UNIQUE INDEX generations_job ON generations (org_id, job_id);

-- What a user's lists walk.
CREATE INDEX generations_of_user ON generations (org_id, user_id, id);

-- The wall. A policy that lets everybody through, so that nothing changes for others, and one that
-- coatcheck_user has to pass besides. A setting that was set for a transaction is empty after it, and
-- NULL before the first: either way it is nobody's.
ALTER TABLE voices ENABLE ROW LEVEL SECURITY;
ALTER TABLE generations ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE artifacts ENABLE ROW LEVEL SECURITY;

CREATE POLICY everybody ON voices USING (true) WITH CHECK (true);
CREATE POLICY everybody ON generations USING (true) WITH CHECK (true);
CREATE POLICY everybody ON jobs USING (true) WITH CHECK (true);
CREATE POLICY everybody ON artifacts USING (true) WITH CHECK (true);

CREATE POLICY own_rows ON voices AS RESTRICTIVE TO coatcheck_user USING (
    org_id = nullif(current_setting('coatcheck.org', true), '')
    AND user_id = nullif(current_setting('coatcheck.user', true), '')
);
CREATE POLICY own_rows ON generations AS RESTRICTIVE TO coatcheck_user USING (
    org_id = nullif(current_setting('coatcheck.org', true), '')
    AND user_id = nullif(current_setting('coatcheck.user', true), '')
);
-- A job's owner is spelt as domain/identity.py spells a user.
CREATE POLICY own_rows ON jobs AS RESTRICTIVE TO coatcheck_user USING (
    org_id = nullif(current_setting('coatcheck.org', true), '')
    AND owner = 'user:' || nullif(current_setting('coatcheck.user', true), '')
);
-- An artifact is whose its job is; which jobs there are for the reader is said above.
CREATE POLICY own_rows ON artifacts AS RESTRICTIVE TO coatcheck_user USING (
    EXISTS (
        SELECT FROM jobs AS j WHERE j.org_id = artifacts.org_id AND j.id = artifacts.job_id
    )
);

GRANT SELECT ON voices, generations, artifacts TO coatcheck_user;
-- What is shown of a job: neither its payload, nor its lease.
GRANT SELECT (
    org_id, id, lane, endpoint, flow, state, failures, failures_max, crashes, interruptions,
    unreachables, created_at, run_at, dispatched_at, started_at, finished_at, updated_at, expires_at,
    start_deadline, progress, progress_note, idempotency_key, request_id, owner, error_code,
    error_message, execution_id, result
) ON jobs TO coatcheck_user;
