-- The position of a task `j` in its batch: its number, unless a row of batch_positions has another.
coalesce((
           SELECT p.position
           FROM batch_positions AS p
           WHERE p.org_id = j.org_id AND p.run_id = j.run_id AND p.task_index = j.task_index
       ), j.task_index)
