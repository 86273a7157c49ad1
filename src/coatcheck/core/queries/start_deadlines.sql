-- name: add
-- Write the rows of jobs that have a start deadline, in the statement that creates them: a common table
-- expression from its `created`, which gives start_deadline.
to_look_at AS (
    INSERT INTO start_deadlines (org_id, id, due_at)
    SELECT c.org_id, c.id, /* include start_deadlines/look_at */
    FROM created AS c
    WHERE c.start_deadline IS NOT NULL
)

-- name: look_at
-- When to look whether a job `c` has started: included by add, and by the loop that looks.
least(c.start_deadline, now() + interval '1 day')
