-- The llm surface: which target a job was given to, and what is known of each target.
--
-- A job is bound to a target when it is claimed. Its row here is written with the claim, and again
-- with each later one; it says something of now while `lease` is the job's own, so that whoever
-- takes a job from its worker has nothing to do here, and a permit of a target in use is a held job.
-- `loading`: when it was claimed, its model was not loaded. Gone with its job.

CREATE TABLE llm_assignments (
    org_id      text COLLATE "C" NOT NULL,
    job_id      uuid NOT NULL,
    target      text COLLATE "C" NOT NULL,
    lease       bigint NOT NULL,
    loading     boolean NOT NULL,
    assigned_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, job_id)
) WITH (fillfactor = 85);

-- Targets, by their names in the settings of whoever claims for them. Not a tenant's: a reference
-- table, like `workers`.
--
-- The turn (domain/llm_turns.py): the model that the target is at work on, since when, and who had
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
