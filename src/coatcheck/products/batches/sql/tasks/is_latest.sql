-- Whether no later run has taken a task in again, for a task `seen` of a run, whose position is in
-- `own` if it is not its number: included by latest_ended.sql and its like.
--
-- One look at the primary key for each task. With NOT EXISTS the planner may read all rows of the
-- batch instead, once, and remember them.
--
-- $4 the run's number   $5 positions below this are mirrored by a later run   $6 runs numbered below
-- this count
coalesce(own.position, seen.task_index) >= $5::integer
       AND (
           SELECT true
           FROM batch_positions AS later
           WHERE later.org_id = $1 AND later.batch_id = $2
             AND later.position = coalesce(own.position, seen.task_index)
             AND later.run_number > $4::integer AND later.run_number < $6::integer
           LIMIT 1
       ) IS NULL
