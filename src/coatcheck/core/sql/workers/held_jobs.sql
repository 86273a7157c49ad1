-- The jobs that a worker holds: the id and the lease of each claim of its boot that has not ended, and
-- whether the job has started. Always at least one row, which says whether a standby answered.
--
-- $1 boot
SELECT s.is_standby, j.id, j.lease, j.state IN ('processing', 'finalizing') AS begun
FROM (SELECT pg_is_in_recovery() AS is_standby) AS s
LEFT JOIN jobs AS j ON j.lease >> 40 = $1 AND j.lease IS NOT NULL
