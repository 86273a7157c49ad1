-- Create jobs that can meet no conflict: no key, no option. -> queued
--
-- As submit.sql, without its ON CONFLICT, which costs a fifth of it. Only our own id could exist
-- already, from a statement whose answer was lost: then submit.sql is sent instead.
--
-- $1-$9 one array per column
INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)
SELECT s.org_id, s.id,
       CASE s.lane
           WHEN 'urgent' THEN 'urgent'::job_lane
           WHEN 'standard' THEN 'standard'::job_lane
           WHEN 'bulk' THEN 'bulk'::job_lane
       END,
       s.endpoint, s.flow, s.failures_max, s.payload, coalesce(s.owner, ''),
       s.request_id
FROM unnest(
    $1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bytea[],
    $8::text[], $9::text[]
) AS s (org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id)
