-- Chats whose synchronous caller has gone before the answer: what a retry of that caller's client may
-- join (surfaces/llm/caller_retries.py). A row is written when the connection ends, deleted by the one
-- retry that joins, and written again should that one leave as well. So a job without a row is one
-- that somebody waits for, or that nobody ever did.
--
-- `digest` is SHA-256 of the job's payload. Rows that nobody may join any more are deleted within
-- seconds, because what was asked is not to be guessed from them after the job's end.

CREATE TABLE llm_abandoned (
    org_id  text COLLATE "C" NOT NULL,
    job_id  uuid NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    digest  bytea NOT NULL,
    left_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, job_id)
);

-- What a retry looks up.
CREATE INDEX llm_abandoned_digest ON llm_abandoned (org_id, digest);

-- What the pruner walks.
CREATE INDEX llm_abandoned_left ON llm_abandoned (left_at);
