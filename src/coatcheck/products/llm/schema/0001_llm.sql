-- The llm product: which target a job was given to, what is known of each target, and the chats whose
-- caller has gone.
--
-- A job is bound to a target when it is claimed. Its row here is written with the claim, and again
-- with each later one; it is current while `lease` is the job's own, so that whoever takes a job from
-- its worker has nothing to do here, and a permit of a target in use is a held job.
-- `loading`: when it was claimed, its model was not loaded. Deleted with its job.
--
-- `drops`: how often a target dropped the chat in mid-answer and was there right afterwards, and
-- `dropped_lease` is the lease that was last counted for. It ends the chat at a bound of its own,
-- because what is asked may be what breaks the target; crashes, failures, interruptions and targets
-- that are away have counters on the job.

CREATE TABLE llm_assignments (
    org_id        text COLLATE "C" NOT NULL,
    job_id        uuid NOT NULL,
    target        text COLLATE "C" NOT NULL,
    lease         bigint NOT NULL,
    loading       boolean NOT NULL,
    assigned_at   timestamptz NOT NULL DEFAULT now(),
    drops         smallint NOT NULL DEFAULT 0,
    dropped_lease bigint,
    PRIMARY KEY (org_id, job_id)
) WITH (fillfactor = 85);

-- Targets, by their names in the settings of the workers that claim for them. They hold no tenant
-- data: a reference table, like `workers`.
--
-- The turn (products/llm/model_scheduler.py): the model that the target is at work on, since when, and which had
-- one before. `served` and `ended` are bounded in number. Only claims write these, one at a time.
--
-- `unreachable_since`: nobody got an answer from it since then; the next try is at `next_try_at`.

CREATE TABLE llm_targets (
    name              text COLLATE "C" PRIMARY KEY,
    model             text COLLATE "C",
    turn_began_at     timestamptz,
    urgent_streak     integer NOT NULL DEFAULT 0,
    picks             bigint NOT NULL DEFAULT 0,
    ended             jsonb NOT NULL DEFAULT '{}',
    served            jsonb NOT NULL DEFAULT '{}',
    unreachable_since timestamptz,
    next_try_at       timestamptz,
    last_error        text,
    seen_at           timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT tried_again_while_unreachable CHECK (
        (unreachable_since IS NULL) = (next_try_at IS NULL)
    )
) WITH (fillfactor = 50);

-- The jobs that wait for a target's return.
CREATE INDEX jobs_unreachable ON jobs (endpoint, run_at)
    WHERE state = 'retrying' AND error_code = 'target_unreachable';

-- Chats whose synchronous caller has gone before the answer: what a retry of that caller's client may
-- join (products/llm/caller_retries.py). A row is written when the connection ends, deleted by the one
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
