-- name: by_ids
-- Tasks of some runs by their ids, in the order of the ids. The ids are computed from the tasks'
-- numbers: each row of a page is one read by primary key, wherever in the run the page begins.
SELECT /* include tasks/view_columns */
FROM unnest(:ids::uuid[]) WITH ORDINALITY AS wanted (id, position)
JOIN jobs AS j ON j.org_id = :org AND j.id = wanted.id AND j.run_id = ANY (:runs::uuid[])
ORDER BY wanted.position

-- name: earlier_runs
-- The runs of a batch with numbers below one, oldest first, in the order of EarlierRun.
SELECT r.number, r.id, r.tasks, CASE r.number WHEN 1 THEN r.tasks ELSE r.mirrored END AS mirrored,
       CASE r.number WHEN 1 THEN r.tasks ELSE r.new_tasks END AS new_tasks, r.completed_at,
       r.succeeded - r.replaced_succeeded, r.failed - r.replaced_failed,
       r.cancelled - r.replaced_cancelled
FROM runs AS r
WHERE r.org_id = :org AND r.group_id = :batch AND r.number < :before
ORDER BY r.number

-- name: ended
-- A run's tasks that ended in one state, in order: one range of ended_tasks.
SELECT /* include tasks/view_columns */
FROM (/* include coatcheck.core:jobs/ended_tasks */) AS e
CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = e.id OFFSET 0) AS j
ORDER BY e.number

-- name: failures
-- Counts of a run's failed tasks by error code, most frequent first. Reads one range of ended_tasks, in the
-- order of the tasks' numbers, up to a limit: a run of millions costs no more than one of
-- thousands.
SELECT f.error_code AS code, count(*) AS tasks, sum(count(*)) OVER () AS counted
FROM (
    SELECT coalesce(j.error_code, '') AS error_code
    FROM (/* include coatcheck.core:jobs/ended_tasks */) AS e
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = e.id OFFSET 0) AS j
) AS f
GROUP BY f.error_code
ORDER BY tasks DESC, code
LIMIT :codes_max

-- name: get
-- One task of a batch, of any run, with its payload, and its result unless that is long:
-- jobs/result reads long results.
SELECT /* include tasks/view_columns */, j.payload AS input
FROM jobs AS j
JOIN runs AS r ON r.org_id = j.org_id AND r.id = j.run_id AND r.group_id = :batch
WHERE j.org_id = :org AND j.id = :task

-- name: has_code
-- Whether an ended task `e` has one of :error_codes; NULL asks for none, and reads no job.
(:error_codes::text[] IS NULL OR coalesce((
           SELECT j.error_code = ANY (:error_codes)
           FROM jobs AS j
           WHERE j.org_id = :org AND j.id = e.id
       ), false))

-- name: is_latest
-- Whether no later run has repeated a task `seen` of a run. `own` has its position, if that is not its
-- number. latest_ended, latest_failures and batches/has_latest include it.
--
-- One read of the primary key for each task. With NOT EXISTS, the planner may instead read all rows
-- of the batch once, and keep them.
--
-- :number is that of the run. Later runs have all positions below :mirrored_after. Only runs with
-- numbers below :before count.
coalesce(own.position, seen.task_index) >= :mirrored_after::integer
       AND (
           SELECT true
           FROM batch_positions AS later
           WHERE later.org_id = :org AND later.batch_id = :batch
             AND later.position = coalesce(own.position, seen.task_index)
             AND later.run_number > :number::integer AND later.run_number < :before::integer
           LIMIT 1
       ) IS NULL

-- name: latest_ended
-- A run's tasks that ended in one state, in order, and which of them are the latest of their position.
-- Scans a limited part of one range of ended_tasks, however few of its tasks are the latest.
SELECT seen.task_index, seen.is_wanted AND /* include tasks/is_latest */ AS is_latest
FROM (
    SELECT e.number AS task_index, /* include tasks/has_code */ AS is_wanted
    FROM (/* include coatcheck.core:jobs/ended_tasks */) AS e
) AS seen
LEFT JOIN batch_positions AS own
    ON own.org_id = :org AND own.run_id = :run AND own.task_index = seen.task_index
ORDER BY seen.task_index

-- name: latest_failures
-- Counts by error code of a run's failed tasks that are the latest of their position, as failures,
-- and how many tasks were scanned.
SELECT seen.error_code AS code,
       count(*) FILTER (WHERE /* include tasks/is_latest */) AS tasks,
       count(*) AS seen
FROM (
    SELECT e.number AS task_index, coalesce(j.error_code, '') AS error_code
    FROM (/* include coatcheck.core:jobs/ended_tasks */) AS e
    CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = e.id OFFSET 0) AS j
) AS seen
LEFT JOIN batch_positions AS own
    ON own.org_id = :org AND own.run_id = :run AND own.task_index = seen.task_index
GROUP BY seen.error_code

-- name: latest_of_positions
-- The newest row of each position, of runs with numbers below one: one read each, at the end of a
-- range of the primary key. A position without a row belongs to a run that mirrors it.
SELECT t.position, newest.run_number, newest.run_id, newest.task_index
FROM unnest(:positions::integer[]) AS t (position)
CROSS JOIN LATERAL (
    SELECT p.run_number, p.run_id, p.task_index
    FROM batch_positions AS p
    WHERE p.org_id = :org AND p.batch_id = :batch AND p.position = t.position AND p.run_number < :before
    ORDER BY p.run_number DESC
    LIMIT 1
) AS newest

-- name: position
-- The position of a task `j` in its batch: its number, unless a row of batch_positions has another.
coalesce((
           SELECT p.position
           FROM batch_positions AS p
           WHERE p.org_id = j.org_id AND p.run_id = j.run_id AND p.task_index = j.task_index
       ), j.task_index)

-- name: positions_of
-- The positions of a run's tasks, in the order of these numbers. The position of a task without a row
-- is its number.
SELECT coalesce(p.position, t.number) AS position
FROM unnest(:numbers::integer[]) WITH ORDINALITY AS t (number, place)
LEFT JOIN batch_positions AS p ON p.org_id = :org AND p.run_id = :run AND p.task_index = t.number
ORDER BY t.place

-- name: queued
-- A run's queued tasks, in the order of the queue: one range of queue_order. The first comparison is
-- the lower end of the range, so that a page begins where the previous one ended.
SELECT /* include tasks/view_columns */, j.flow, j.run_at, n.row
FROM (
    SELECT q.org_id, q.id AS row, n.id
    FROM queue AS q
    CROSS JOIN LATERAL unnest(q.ids) AS n (id)
    WHERE /* include tasks/in_queue */
      AND (q.flow, q.run_at, q.id)
          >= (:after_queue_key::text, :after_run_at::timestamptz, :after_row::uuid)
      AND (q.flow, q.run_at, q.id, n.id)
          > (:after_queue_key::text, :after_run_at::timestamptz, :after_row::uuid, :after_id::uuid)
    ORDER BY q.flow, q.run_at, q.id, n.id
) AS n
/* include coatcheck.core:queue/job */
LIMIT :limit

-- name: in_queue
-- Whether a row `q` of the queue names tasks of the run :run of the organisation :org: a range of
-- queue_order.
q.lane = (SELECT r.lane FROM runs AS r WHERE r.org_id = :org AND r.id = :run)
          AND q.endpoint = (SELECT r.endpoint FROM runs AS r WHERE r.org_id = :org AND r.id = :run)
          AND q.org_id = :org AND q.flow >= replace(:run::uuid::text, '-', '')
          AND q.flow < replace(:run::uuid::text, '-', '') || '0'

-- name: running
-- A run's running tasks, in order. Reads all held jobs of the organisation, at most as many as there are
-- slots.
SELECT /* include tasks/view_columns */
FROM held_jobs AS j
WHERE j.org_id = :org AND j.run_id = :run AND j.task_index > :after::integer
ORDER BY j.task_index
LIMIT :limit

-- name: scheduled
-- A run's tasks that wait for a time to start or to be retried, in order: one range of
-- postponed_of_run.
SELECT /* include tasks/view_columns */
FROM postponed AS p
/* include coatcheck.core:postponed/job */
WHERE p.org_id = :org AND p.run_id = :run AND p.task_index > :after::integer
ORDER BY p.task_index
LIMIT :limit

-- name: view_columns
-- The columns of a task, in the order of TaskView but without its input: callers have it, and pages
-- leave it out. Long results are left out, with their length.
j.id, j.task_index, j.custom_id, j.state::text AS state,
       j.failures + j.crashes
           + CASE WHEN j.lease IS NOT NULL OR j.state = 'completed' THEN 1 ELSE 0 END AS attempts,
       j.error_code, j.error_message,
       CASE WHEN octet_length(j.result) <= :result_bytes_max::integer THEN j.result END AS result,
       j.created_at, j.started_at, j.finished_at, j.run_id,
       octet_length(j.result) AS result_bytes,
       /* include tasks/position */ AS position
