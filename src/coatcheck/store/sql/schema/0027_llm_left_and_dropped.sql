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

-- How often a target dropped the chat in mid-answer and was there right afterwards, and the lease that
-- was last counted for. It ends the chat at a bound of its own, because what is asked may be what breaks
-- the target; crashes, failures, interruptions and targets that are away are counted elsewhere.
ALTER TABLE llm_assignments
    ADD COLUMN drops smallint NOT NULL DEFAULT 0,
    ADD COLUMN dropped_lease bigint;
