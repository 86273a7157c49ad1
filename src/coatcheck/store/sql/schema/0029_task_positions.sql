-- A batch as a whole: each of its tasks once, with its latest result, over all runs.
--
-- A task's position is its number in the batch: the one that it had when it was first written. A rerun
-- gives the task new numbers, in the run, and keeps the position. In the first run the two are the
-- same. In a later one they are the same for the first `mirrored` tasks, as they are for all tasks
-- of a rerun of the whole batch; for every other task there is a row here. So a rerun of a million
-- tasks writes none, and one of the few that failed writes a few.

CREATE TABLE batch_positions (
    org_id     text COLLATE "C" NOT NULL,
    batch_id   uuid NOT NULL,
    position   integer NOT NULL,
    run_number integer NOT NULL,
    run_id     uuid NOT NULL,
    task_index integer NOT NULL,
    -- Which run has a position's latest task: one look at the end of a short range.
    PRIMARY KEY (org_id, batch_id, position, run_number)
);

-- The position of a task.
CREATE UNIQUE INDEX batch_positions_task ON batch_positions (org_id, run_id, task_index)
    INCLUDE (position);

-- `new_tasks` are those of a later run that no run before had: of a list that failed there and was
-- taken in here. The positions of a batch are as many as its first run's tasks and all of these.
--
-- `replaced_*` are a run's tasks, by how they ended, that a later run has taken in again: what they
-- came to is not what the batch came to. They move with the chunk that takes them in. A run's tasks
-- are not taken in before it has completed, so that each of them has ended by then.
ALTER TABLE batch_runs
    ADD COLUMN mirrored integer NOT NULL DEFAULT 0,
    ADD COLUMN new_tasks integer NOT NULL DEFAULT 0,
    ADD COLUMN replaced_succeeded integer NOT NULL DEFAULT 0,
    ADD COLUMN replaced_failed integer NOT NULL DEFAULT 0,
    ADD COLUMN replaced_cancelled integer NOT NULL DEFAULT 0,
    -- Whether it took tasks of the batch as a whole, and not of its parent only.
    ADD COLUMN repeats_all boolean NOT NULL DEFAULT false;

-- Of a rerun of the whole batch: the latest tasks of runs that are numbered below this.
ALTER TABLE batch_parts ADD COLUMN source_before integer;

-- Of the batch as a whole, as of its run `run_id` and those before it.
ALTER TABLE batch_exports ADD COLUMN all_runs boolean NOT NULL DEFAULT false;
