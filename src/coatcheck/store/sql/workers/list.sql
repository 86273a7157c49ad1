-- The worker processes, and how long each has been silent.
SELECT w.boot, w.name, w.version, w.started_at, w.last_seen_at,
       extract(epoch FROM now() - w.last_seen_at)::double precision AS silent_seconds,
       (SELECT count(*) FROM jobs AS j WHERE j.lease >> 40 = w.boot AND j.lease IS NOT NULL) AS held
FROM workers AS w
ORDER BY w.boot
