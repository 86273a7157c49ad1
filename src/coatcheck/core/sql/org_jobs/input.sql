-- A job's payload, as long as it is kept.
--
-- $1 org   $2 id
SELECT j.payload FROM jobs AS j WHERE j.org_id = $1 AND j.id = $2
