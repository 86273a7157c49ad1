-- Add log lines and output chunks of running jobs, in order. Fenced: the job's row is locked while its
-- lease is compared, so a holder that lost it cannot add a line after its successor's. The lease is
-- compared for each line: a worker that claimed a job again, after a crash of the server undid the
-- first claim, may send lines of both in one statement.
--
-- The lock also keeps the order for readers. A writer of a job's events holds it, against all others,
-- from before a number is drawn until the commit: so of one job's events a higher number is never
-- visible before a lower one, and a reader that continues after the last one it saw misses none.
--
-- Jobs are locked in the order of their keys, as in jobs/mark_started.sql, which the same worker sends
-- concurrently: two that meet wait, and do not deadlock.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease
    FROM (SELECT DISTINCT org_id, id, lease FROM unnest($1::text[], $2::uuid[], $3::bigint[])
          AS e (org_id, id, lease)) AS e
    JOIN jobs AS j ON j.org_id = e.org_id AND j.id = e.id AND j.lease = e.lease
    ORDER BY j.org_id, j.id
    FOR NO KEY UPDATE OF j
)
INSERT INTO job_events (org_id, job_id, kind, data, write_id)
SELECT e.org_id, e.id, e.kind, e.data, $6::bigint
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bytea[]) WITH ORDINALITY
    AS e (org_id, id, lease, kind, data, position)
JOIN held AS h ON h.org_id = e.org_id AND h.id = e.id AND h.lease = e.lease
ORDER BY e.position
