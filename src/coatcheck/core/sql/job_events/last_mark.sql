-- The last JSON chunk of a job that begins with a mark: a handler writes it to restart its output, and
-- everything before no longer counts. Reads all of the job's output, so only readers that join late
-- ask for it.
--
-- $1 org   $2 id   $3 how the chunk begins
SELECT max(seq) AS seq
FROM job_events
WHERE org_id = $1 AND job_id = $2 AND kind = 'json'
  AND substr(data, 1, octet_length($3::bytea)) = $3::bytea
