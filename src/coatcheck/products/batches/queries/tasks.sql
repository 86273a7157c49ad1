-- name: by_ids
-- Tasks of some runs by their ids, in the order of the ids. The ids are computed from the tasks'
-- numbers: each row of a page is one read by primary key, wherever in the run the page begins.
--
-- $1 org   $2 runs   $3 as in view_columns   $4 ids
SELECT /* include tasks/view_columns */
FROM unnest($4::uuid[]) WITH ORDINALITY AS wanted (id, position)
JOIN jobs AS j ON j.org_id = $1 AND j.id = wanted.id AND j.run_id = ANY ($2::uuid[])
ORDER BY wanted.position

-- name: ended
-- A run's tasks that ended in one state, in order: one range of jobs_run_ended. The states are listed
-- so that the predicate of the index holds for every $4.
--
-- $1-$3 as in view_columns   $4 state   $5 after this number   $6 rows at most
SELECT /* include tasks/view_columns */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('completed', 'failed', 'cancelled')
  AND j.state = $4::text::job_state AND j.task_index > $5::integer
ORDER BY j.task_index
LIMIT $6

-- name: failures
-- Counts of a run's failed tasks by error code, most frequent first. Reads one range of jobs_run_ended,
-- in the order of the tasks' numbers, up to a limit: a run of millions costs no more than one of
-- thousands.
--
-- $1 org   $2 run   $3 tasks at most   $4 codes at most
SELECT f.error_code AS code, count(*) AS tasks, sum(count(*)) OVER () AS counted
FROM (
    SELECT coalesce(j.error_code, '') AS error_code
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = 'failed'
    ORDER BY j.task_index
    LIMIT $3
) AS f
GROUP BY f.error_code
ORDER BY tasks DESC, code
LIMIT $4

-- name: get
-- One task of a batch, of any run, with its payload, and its result unless that is long:
-- jobs/result reads long results.
--
-- $1 org   $2 batch   $3 id   $4 bytes that a result may have
SELECT j.id, j.task_index, j.custom_id, j.state::text AS state,
       j.failures + j.crashes
           + CASE WHEN j.lease IS NOT NULL OR j.state = 'completed' THEN 1 ELSE 0 END AS attempts,
       j.error_code, j.error_message,
       CASE WHEN octet_length(j.result) <= $4::integer THEN j.result END AS result,
       j.payload AS input, j.created_at, j.started_at, j.finished_at, j.run_id, octet_length(j.result) AS result_bytes,
       /* include tasks/position */ AS position
FROM jobs AS j
JOIN runs AS r ON r.org_id = j.org_id AND r.id = j.run_id AND r.group_id = $2
WHERE j.org_id = $1 AND j.id = $3

-- name: is_latest
-- Whether no later run has repeated a task `seen` of a run. `own` has its position, if that is not its
-- number. latest_ended, latest_failures and batches/has_latest include it.
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

-- name: latest_ended
-- A run's tasks that ended in one state, in order, and which of them are the latest of their position.
-- Scans a limited part of one range of jobs_run_ended, however few of its tasks are the latest.
--
-- $1 org   $2 batch   $3 run   $4-$6 as in is_latest   $7 state   $8 error codes, or NULL
-- $9 after this number   $10 tasks to scan
SELECT seen.task_index, seen.is_wanted AND /* include tasks/is_latest */ AS is_latest
FROM (
    SELECT j.task_index, $8::text[] IS NULL OR coalesce(j.error_code = ANY ($8), false) AS is_wanted
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $3 AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = $7::text::job_state AND j.task_index > $9::integer
    ORDER BY j.task_index
    LIMIT $10
) AS seen
LEFT JOIN batch_positions AS own
    ON own.org_id = $1 AND own.run_id = $3 AND own.task_index = seen.task_index
ORDER BY seen.task_index

-- name: latest_failures
-- Counts by error code of a run's failed tasks that are the latest of their position, as failures,
-- and how many tasks were scanned.
--
-- $1 org   $2 batch   $3 run   $4-$6 as in is_latest   $7 tasks to scan
SELECT seen.error_code AS code,
       count(*) FILTER (WHERE /* include tasks/is_latest */) AS tasks,
       count(*) AS seen
FROM (
    SELECT j.task_index, coalesce(j.error_code, '') AS error_code
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $3 AND j.state IN ('completed', 'failed', 'cancelled')
      AND j.state = 'failed'
    ORDER BY j.task_index
    LIMIT $7
) AS seen
LEFT JOIN batch_positions AS own
    ON own.org_id = $1 AND own.run_id = $3 AND own.task_index = seen.task_index
GROUP BY seen.error_code

-- name: position
-- The position of a task `j` in its batch: its number, unless a row of batch_positions has another.
coalesce((
           SELECT p.position
           FROM batch_positions AS p
           WHERE p.org_id = j.org_id AND p.run_id = j.run_id AND p.task_index = j.task_index
       ), j.task_index)

-- name: queued
-- A run's queued tasks, in the order of the queue: one range of jobs_ready. The comparison of rows is
-- the lower end of the range, so that a page begins where the previous one ended.
--
-- $1-$3 as in view_columns   $4 batch   $5 $6 $7 after this flow, time and id   $8 rows at most
SELECT /* include tasks/view_columns */, j.flow, j.run_at
FROM jobs AS j
WHERE j.state = 'queued' AND j.org_id = $1 AND j.run_id = $2
  AND j.lane = (SELECT b.lane FROM batches AS b WHERE b.org_id = $1 AND b.id = $4)
  AND j.endpoint = (SELECT b.endpoint FROM batches AS b WHERE b.org_id = $1 AND b.id = $4)
  AND (j.flow, j.run_at, j.id) > ($5::text, $6::timestamptz, $7::uuid)
  AND j.flow < replace($2::uuid::text, '-', '') || '0'
ORDER BY j.flow, j.run_at, j.id
LIMIT $8

-- name: running
-- A run's running tasks, in order: jobs_run_held. Reads all of them, at most as many as there are
-- slots. By their states and not by their leases, for which the planner would take jobs_held instead.
--
-- $1-$3 as in view_columns   $4 after this number   $5 rows at most
SELECT /* include tasks/view_columns */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.task_index > $4::integer
  AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
ORDER BY j.task_index
LIMIT $5

-- name: scheduled
-- A run's tasks that wait for a time to start or to be retried, in order: one range of
-- jobs_run_postponed.
--
-- $1-$3 as in view_columns   $4 after this number   $5 rows at most
SELECT /* include tasks/view_columns */
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('staged', 'retrying')
  AND j.task_index > $4::integer
ORDER BY j.task_index
LIMIT $5

-- name: view_columns
-- The columns of a task in a page, in the order of TaskView. Long results are left out, with their
-- length; inputs are left out, because callers have them.
--
-- $1 org   $2 run   $3 bytes that a result in a page may have
j.id, j.task_index, j.custom_id, j.state::text AS state,
       j.failures + j.crashes
           + CASE WHEN j.lease IS NOT NULL OR j.state = 'completed' THEN 1 ELSE 0 END AS attempts,
       j.error_code, j.error_message,
       CASE WHEN octet_length(j.result) <= $3::integer THEN j.result END AS result,
       NULL::bytea AS input, j.created_at, j.started_at, j.finished_at, j.run_id,
       octet_length(j.result) AS result_bytes,
       /* include tasks/position */ AS position
