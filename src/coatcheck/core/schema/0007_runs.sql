-- Runs: many jobs as a group, each of them a task (0001_jobs.sql). A group may be run again, which is
-- another run of it. `group_id` is opaque here: it belongs to the product that made the group.
--
-- `tasks` is how many were written, which is the number of the next one: every chunk of tasks moves it
-- from its previous value, in the transaction that writes the chunk, so that no chunk is written twice.
-- The statement that latches the run sets `total`, absolutely: from then on the run may complete. The
-- roll-up of usage counts ended tasks (`roll_up` in core/queries/usage.sql).
--
-- A group as a whole is each of its tasks once, with its latest result, over all runs. A task's
-- position is its number in the group: the one that it had when it was first written. A rerun gives
-- the task new numbers, in the run, and keeps the position. In the first run the two are the same. In
-- a later one they are the same for the first `mirrored` tasks, as they are for all tasks of a rerun
-- of the whole group; the product notes the positions of the others. So a rerun of a million tasks
-- notes none, and one of the few that failed notes a few.

CREATE TABLE runs (
    org_id          text COLLATE "C" NOT NULL,
    id              uuid NOT NULL,
    group_id        uuid NOT NULL,
    number          integer NOT NULL,
    -- The queue of its tasks.
    lane            job_lane NOT NULL,
    endpoint        text COLLATE "C" NOT NULL,
    -- What was called, as the caller named it.
    service         text NOT NULL,
    service_endpoint text NOT NULL,
    -- The flow under which its tasks' usage is summed up; their own would make a sum for each run.
    usage_flow      text COLLATE "C" NOT NULL DEFAULT '',
    -- The target that is sent its tasks' failures (`jobs.webhook` 3) and the product's own messages.
    webhook_target  uuid,
    -- The row of service_secrets that its tasks are sent with.
    secrets_id      uuid,
    parent_run      uuid,
    -- Which tasks of its parent a rerun repeats: {"status": [...], "error_code": [...]}.
    selection       jsonb,
    -- Whether it repeats tasks of the whole group, and not only of its parent.
    repeats_all     boolean NOT NULL DEFAULT false,
    tasks           integer NOT NULL DEFAULT 0,
    -- In the lists that its tasks came from.
    lines           bigint NOT NULL DEFAULT 0,
    bad_lines       bigint NOT NULL DEFAULT 0,
    total           integer,
    succeeded       integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    cancelled       integer NOT NULL DEFAULT 0,
    -- How many successes were sent by webhook.
    succeeded_told  integer NOT NULL DEFAULT 0,
    succeeded_told_at timestamptz,
    mirrored        integer NOT NULL DEFAULT 0,
    -- Of a later run: tasks that no earlier run had. The positions of a group are the tasks of its first
    -- run and all of these.
    new_tasks       integer NOT NULL DEFAULT 0,
    -- Its tasks, by how they ended, that a later run repeats: their results are not the group's. They
    -- change with the chunk that repeats them. A run's tasks are not repeated before it has completed,
    -- so that each of them has ended by then.
    replaced_succeeded integer NOT NULL DEFAULT 0,
    replaced_failed integer NOT NULL DEFAULT 0,
    replaced_cancelled integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    closed_at       timestamptz,
    latched_at      timestamptz,
    cancel_requested_at timestamptz,
    completed_at    timestamptz,
    -- Its group is no longer shown, and its tasks are being deleted.
    removed_at      timestamptz,
    PRIMARY KEY (org_id, id),
    CONSTRAINT latched_with_a_total CHECK ((latched_at IS NULL) = (total IS NULL)),
    CONSTRAINT completed_when_counted CHECK (
        completed_at IS NULL OR (total IS NOT NULL AND succeeded + failed + cancelled = total)
    )
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX runs_of_group ON runs (org_id, group_id, number);
-- Frequent lookups: unfinished runs, those of them that may complete, and those that are open.
CREATE INDEX runs_live ON runs (org_id, id) WHERE completed_at IS NULL;
CREATE INDEX runs_latched ON runs (org_id, id)
    WHERE completed_at IS NULL AND latched_at IS NOT NULL;
CREATE INDEX runs_open ON runs (created_at) WHERE closed_at IS NULL;
-- Retention of webhook targets looks up here whether a run refers to one.
CREATE INDEX runs_webhook_target ON runs (org_id, webhook_target) WHERE webhook_target IS NOT NULL;
