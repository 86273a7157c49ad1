-- Whether no later run has repeated a task `seen` of a run. `own` has its position, if that is not its
-- number. latest_ended.sql, latest_failures.sql and batches/has_latest.sql include it.
--
-- One read of the primary key for each task. With NOT EXISTS, the planner may instead read all rows
-- of the batch once, and keep them.
--
-- $4 the run's number   $5 a later run mirrors the positions below this   $6 only runs with numbers
-- below this count
coalesce(own.position, seen.task_index) >= $5::integer
       AND (
           SELECT true
           FROM batch_positions AS later
           WHERE later.org_id = $1 AND later.batch_id = $2
             AND later.position = coalesce(own.position, seen.task_index)
             AND later.run_number > $4::integer AND later.run_number < $6::integer
           LIMIT 1
       ) IS NULL
