-- What people need to look after jobs: the inputs of jobs that came to nothing, the story of their
-- attempts, and which job is another one's second try.
--
-- A job that fails or is cancelled keeps its payload until it expires, so that it can be retried:
-- unless `keeps_input` is false. Jobs whose input is to leave no trace have it so, and those of
-- endpoints that ask for it. A completed job never keeps it. A retry is a new job, because an end is
-- an end; `retry_of` is the job that it is a retry of.

ALTER TABLE jobs
    ADD COLUMN keeps_input boolean NOT NULL DEFAULT true,
    ADD COLUMN retry_of uuid;

-- Archives leave no trace; those that go on were handed in under that promise.
UPDATE jobs SET keeps_input = false
WHERE starts_with(endpoint, 'graphs.') AND state NOT IN ('completed', 'failed', 'cancelled');

ALTER TABLE jobs
    DROP CONSTRAINT terminal_rows_are_settled_and_empty,
    ADD CONSTRAINT terminal_rows_are_settled_and_empty CHECK (
        state NOT IN ('completed', 'failed', 'cancelled')
        OR (
            finished_at IS NOT NULL AND expires_at IS NOT NULL
            AND (payload IS NULL OR run_id IS NOT NULL OR (keeps_input AND state <> 'completed'))
        )
    );

-- What a job was retried as.
CREATE INDEX jobs_retries ON jobs (org_id, retry_of) WHERE retry_of IS NOT NULL;

-- What came to nothing, newest first. Completions, which are most of all ends, pay nothing for it.
CREATE INDEX jobs_unsuccessful ON jobs (org_id, id)
    WHERE state IN ('failed', 'cancelled') AND run_id IS NULL;

-- An attempt that did not complete is an event of its job, written by the statement that ends it.
ALTER TABLE job_events
    DROP CONSTRAINT job_events_kind_check,
    ADD CONSTRAINT job_events_kind_check
        CHECK (kind IN ('log', 'text', 'json', 'binary', 'alert', 'attempt'));

-- A job's attempts, however much else it has said.
CREATE INDEX job_events_attempts ON job_events (org_id, job_id, seq) WHERE kind = 'attempt';
