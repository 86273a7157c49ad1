-- The workers that ran in a process, and that nobody has found dead yet.
--
-- $1 process
SELECT w.boot, w.temp_dir
FROM workers AS w
WHERE w.process = $1 AND w.died_at IS NULL
