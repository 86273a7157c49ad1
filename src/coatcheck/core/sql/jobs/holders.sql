-- Some of the jobs that use up a limit, longest held first, and their owners.
--
-- IS TRUE keeps the planner from the primary key, by which it would read the organisation's history.
--
-- $1 org   $2 scope: org, flow, endpoint, run, or lane for all held jobs of one   $3 name
-- $4 rows at most
SELECT j.id, j.owner
FROM jobs AS j
WHERE j.lease IS NOT NULL AND (j.org_id = $1) IS TRUE AND CASE $2::text
    WHEN 'org' THEN true
    WHEN 'flow' THEN j.flow = $3
    WHEN 'endpoint' THEN j.endpoint = $3
    WHEN 'run' THEN split_part(j.flow, '/', 1) = $3
    WHEN 'lane' THEN j.lane::text = $3
END
ORDER BY j.dispatched_at, j.id
LIMIT $4::integer
