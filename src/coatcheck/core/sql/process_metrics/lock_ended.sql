-- Processes that have ended, or have been silent for so long that they are taken to have. One that is
-- just pushing is left to the next look.
--
-- $1 seconds of silence   $2 rows at most
SELECT m.process, m.samples
FROM process_metrics AS m
WHERE m.samples IS NOT NULL AND m.kind <> 'gone'
  AND (m.ended OR m.pushed_at < now() - $1::double precision * interval '1 second')
ORDER BY m.pushed_at
LIMIT $2::integer
FOR UPDATE SKIP LOCKED
