-- Extend the claim of a call. No row: another process has it by now.
--
-- $1 org   $2 job   $3 the claimant   $4 lease   $5 seconds
UPDATE remote_calls AS c
SET due_at = now() + $5::double precision * interval '1 second'
WHERE c.org_id = $1 AND c.job_id = $2 AND c.looker = $3 AND c.lease = $4
RETURNING c.job_id
