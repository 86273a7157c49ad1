-- A target dropped a chat in mid-answer, and is there: count it. Fenced by the lease, which the job and
-- its assignment must both still have, and once for each lease: sent again after its answer was lost,
-- it counts no further. The drops so far; no row if the job is another's by now. By the primary keys.
--
-- $1 organisation   $2 job   $3 lease
UPDATE llm_assignments AS a
SET drops = a.drops + (a.dropped_lease IS DISTINCT FROM a.lease)::integer, dropped_lease = a.lease
FROM jobs AS j
WHERE a.org_id = $1 AND a.job_id = $2 AND a.lease = $3::bigint
  AND j.org_id = a.org_id AND j.id = a.job_id AND j.lease = a.lease
RETURNING a.drops
