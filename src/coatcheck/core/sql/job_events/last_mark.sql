-- The last JSON chunk of a job that begins so: the mark by which a handler says that it begins its
-- output again, and that what it said before counts no more. Reads all that the job said,
-- so it is asked only by who comes late.
--
-- $1 org   $2 id   $3 how the chunk begins
SELECT max(seq) AS seq
FROM job_events
WHERE org_id = $1 AND job_id = $2 AND kind = 'json'
  AND substr(data, 1, octet_length($3::bytea)) = $3::bytea
