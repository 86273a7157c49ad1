-- Processes that have ended, or have been silent for so long that they count as ended. One that is
-- pushing right now is left for the next time.
--
-- $1 seconds of silence   $2 rows at most
SELECT m.process, m.samples
FROM process_metrics AS m
WHERE m.samples IS NOT NULL AND m.kind <> 'gone'
  AND (m.ended OR m.pushed_at < now() - $1::double precision * interval '1 second')
ORDER BY m.pushed_at
LIMIT $2::integer
FOR UPDATE SKIP LOCKED
