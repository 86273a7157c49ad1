-- A run's queued tasks, in the order of the queue: one range of jobs_ready. The comparison of rows is
-- the lower end of the range, so that a page begins where the previous one ended.
--
-- $1-$3 as in view_columns.sql   $4 batch   $5 $6 $7 after this flow, time and id   $8 rows at most
SELECT /* include tasks/view_columns.sql */, j.flow, j.run_at
FROM jobs AS j
WHERE j.state = 'queued' AND j.org_id = $1 AND j.run_id = $2
  AND j.lane = (SELECT b.lane FROM batches AS b WHERE b.org_id = $1 AND b.id = $4)
  AND j.endpoint = (SELECT b.endpoint FROM batches AS b WHERE b.org_id = $1 AND b.id = $4)
  AND (j.flow, j.run_at, j.id) > ($5::text, $6::timestamptz, $7::uuid)
  AND j.flow < replace($2::uuid::text, '-', '') || '0'
ORDER BY j.flow, j.run_at, j.id
LIMIT $8
