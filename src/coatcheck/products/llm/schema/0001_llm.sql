-- The tables of the llm product: the target of each job, the state of each target, and the chats whose
-- synchronous caller left.
--
-- A job is bound to a target when it is claimed. Each claim writes its row here. The row is current
-- while `lease` equals the job's lease: a statement that takes a job from its worker needs no change
-- here, and a target's permit in use is a held job.
-- `loading`: the model was not loaded when the job was claimed. Deleted with its job.
--
-- `drops`: how often a target dropped the chat in mid-answer and answered right afterwards;
-- `dropped_lease` is the lease that was counted last. Drops have their own bound, because the request
-- may be what breaks the target; the job has counters for crashes, failures, interruptions and
-- unreachable targets.

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
-- The turn (products/llm/model_scheduler.py): the model that the target serves, since when, and when
-- other models had their last turn. `served` and `ended` have a bounded number of entries. Only claims
-- write these, one at a time.
--
-- `unreachable_since`: the target has not answered since then; the next probe is at `next_try_at`.

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

-- The jobs that wait until a target can be reached.
CREATE INDEX postponed_unreachable ON postponed (endpoint, run_at)
    WHERE error_code = 'target_unreachable';

-- Chats whose synchronous caller left before the answer. A retry by that caller's client may join them
-- (products/llm/caller_retries.py). A row is written when the connection ends, marked by the one retry
-- that joins, and without a mark again if that one leaves as well. So a job without a row, or with a
-- marked one, has a caller who waits, or never had one.
--
-- `digest` is the SHA-256 of the job's payload. Rows that nobody may join any more are deleted within
-- seconds, so that nobody can guess the payload from them after the job's end.

CREATE TABLE llm_abandoned (
    org_id    text COLLATE "C" NOT NULL,
    job_id    uuid NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    digest    bytea NOT NULL,
    left_at   timestamptz NOT NULL DEFAULT now(),
    -- The retry that joined: if its answer is lost, it asks again, and must find the same chat.
    joined_by uuid,
    PRIMARY KEY (org_id, job_id)
);

-- For a retry that joins.
CREATE INDEX llm_abandoned_digest ON llm_abandoned (org_id, digest);

-- For the deletion of old rows.
CREATE INDEX llm_abandoned_left ON llm_abandoned (left_at);
