-- The last push of every process, and the counts of ended ones. `alive`: its gauges may still be true.
--
-- $1 seconds of silence after which a process does not count as alive
SELECT m.process, m.samples,
       NOT m.ended AND m.pushed_at > now() - $1::double precision * interval '1 second' AS alive
FROM process_metrics AS m
WHERE m.samples IS NOT NULL
