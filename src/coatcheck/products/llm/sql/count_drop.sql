-- Count that a target dropped a chat in mid-answer, though it answers others. Fenced by the lease, which
-- the job and its assignment must both still have. Each lease counts once: a repeat of this statement
-- after its answer was lost changes nothing. Returns the drops so far; no row if another worker holds
-- the job by now. Uses the primary keys.
--
-- $1 organisation   $2 job   $3 lease
UPDATE llm_assignments AS a
SET drops = a.drops + (a.dropped_lease IS DISTINCT FROM a.lease)::integer, dropped_lease = a.lease
FROM jobs AS j
WHERE a.org_id = $1 AND a.job_id = $2 AND a.lease = $3::bigint
  AND j.org_id = a.org_id AND j.id = a.job_id AND j.lease = a.lease
RETURNING a.drops
