-- The workers of a process that are not recorded as dead.
--
-- $1 process
SELECT w.boot, w.temp_dir
FROM workers AS w
WHERE w.process = $1 AND w.died_at IS NULL
