-- Parked jobs without a call: no row has the remote's id of the work. Nothing leads on from here, so
-- this takes damage from outside; they are failed. Included by list_orphans.sql and find_orphan.sql,
-- with their own conditions after it.
SELECT j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow,
       j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables, j.request_id, j.lease
FROM jobs AS j
WHERE j.lease IS NOT NULL AND j.lease >> 40 = 0
  AND NOT EXISTS (
      SELECT FROM remote_calls AS c
      WHERE c.org_id = j.org_id AND c.job_id = j.id AND c.lease = j.lease
  )
