-- The workers of a host that nobody has found dead yet: which process each is, and where its isolated
-- jobs have their folders. Reads the whole table, which has a row for each worker that runs or ended
-- lately.
--
-- $1 host
SELECT w.boot, w.pid, w.process_ticks, w.temp_dir
FROM workers AS w
WHERE w.host = $1 AND w.died_at IS NULL
