-- Remove retired secrets that nothing can ask for any more: no job that waits or runs, and no batch
-- that goes on, was accepted while a definition referred to them. A server may know a definition for a
-- while after it was replaced: jobs count that were accepted up to $1 seconds later.
--
-- Jobs of one endpoint are found by their flow, in the indexes jobs_ready, jobs_postponed and jobs_held;
-- the tasks of batches have flows of their own, and their batch says whom they are for.
--
-- $1 seconds after which a retired row is looked at   $2 the endpoint of all such jobs   $3 rows at most
WITH unneeded AS MATERIALIZED (
    SELECT s.org_id, s.id
    FROM service_secrets AS s
    CROSS JOIN LATERAL (
        SELECT s.retired_at + $1::double precision * interval '1 second' AS until
    ) AS jobs_of
    WHERE s.retired_at IS NOT NULL AND jobs_of.until < now()
      AND NOT EXISTS (
          SELECT FROM jobs AS j
          WHERE j.state = 'queued' AND j.lane = ANY (enum_range(NULL::job_lane))
            AND j.endpoint = $2::text AND j.org_id = s.org_id
            AND j.flow = s.endpoint_id AND j.created_at < jobs_of.until
      )
      AND NOT EXISTS (
          SELECT FROM jobs AS j
          WHERE j.state IN ('staged', 'retrying') AND j.org_id = s.org_id
            AND j.endpoint = $2::text AND j.flow = s.endpoint_id AND j.created_at < jobs_of.until
      )
      AND NOT EXISTS (
          SELECT FROM jobs AS j
          WHERE j.lease IS NOT NULL AND j.lease >> 40 >= 0 AND j.org_id = s.org_id
            AND j.endpoint = $2::text AND j.flow = s.endpoint_id AND j.created_at < jobs_of.until
      )
      AND NOT EXISTS (
          SELECT FROM batches AS b
          WHERE b.org_id = s.org_id AND b.completed_at IS NULL AND b.created_at < jobs_of.until
            AND position(s.id::text::bytea IN b.payload_prefix) > 0
      )
    ORDER BY s.retired_at
    LIMIT $3::integer
    FOR UPDATE OF s SKIP LOCKED
)
DELETE FROM service_secrets AS s
USING unneeded AS u
WHERE s.org_id = u.org_id AND s.id = u.id
RETURNING s.id
