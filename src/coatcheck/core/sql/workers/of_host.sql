-- The workers of a host that are not recorded as dead: the process of each, and the folder of its
-- isolated jobs. Reads the whole table, which has a row for each worker that runs or recently ended.
--
-- $1 host
SELECT w.boot, w.pid, w.process_ticks, w.temp_dir
FROM workers AS w
WHERE w.host = $1 AND w.died_at IS NULL
