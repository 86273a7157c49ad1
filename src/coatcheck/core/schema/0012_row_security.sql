-- A role that sees only one user's rows.
--
-- Statements name the organisation and the user whose rows they read: that is the first barrier between
-- users. This is a second one, for readers that want it. Such a reader acts as the role coatcheck_user,
-- with the organisation and the user set for the transaction, and row-level security shows that role
-- nothing else; with no user set, nothing. The tables' owner, as which everything else runs, is not
-- bound by it. A product does the same for its own tables.

DO $$
BEGIN
    -- Roles belong to the whole server: another database may have created it, or be creating it now.
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

-- One policy lets everybody through, so that nothing changes for others; coatcheck_user has to pass the
-- second one as well. A setting that was set for a transaction is empty after it, and NULL before the
-- first: either way it names nobody.
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE artifacts ENABLE ROW LEVEL SECURITY;

CREATE POLICY everybody ON jobs USING (true) WITH CHECK (true);
CREATE POLICY everybody ON artifacts USING (true) WITH CHECK (true);

-- A job's owner is spelt as domain/tenants.py spells a user.
CREATE POLICY own_rows ON jobs AS RESTRICTIVE TO coatcheck_user USING (
    org_id = nullif(current_setting('coatcheck.org', true), '')
    AND owner = 'user:' || nullif(current_setting('coatcheck.user', true), '')
);
-- An artifact belongs to the owner of its job; the policy above says which jobs the reader sees.
CREATE POLICY own_rows ON artifacts AS RESTRICTIVE TO coatcheck_user USING (
    EXISTS (
        SELECT FROM jobs AS j WHERE j.org_id = artifacts.org_id AND j.id = artifacts.job_id
    )
);

GRANT SELECT ON artifacts TO coatcheck_user;
-- The columns that are shown of a job: neither its payload nor its lease. `xmin` is the transaction that
-- wrote the row: by it a stream of a user's jobs knows what has changed.
GRANT SELECT (
    org_id, id, lane, endpoint, flow, state, failures, failures_max, crashes, interruptions,
    unreachables, created_at, run_at, dispatched_at, started_at, finished_at, updated_at, expires_at,
    start_deadline, progress, progress_note, idempotency_key, request_id, owner, error_code,
    error_message, execution_id, result, xmin
) ON jobs TO coatcheck_user;
