-- The worker processes, newest first: the endpoints of each, how many jobs it holds, and whether it was
-- seen within the shortest of its lease times and is not known to be dead.
--
-- $1 rows at most
SELECT w.boot, w.name, w.version,
       (/* include workers/is_live.sql */) AS alive,
       w.started_at, w.last_seen_at, w.lanes, w.slots, w.endpoints,
       (SELECT count(*) FROM jobs AS j WHERE j.lease IS NOT NULL AND j.lease >> 40 = w.boot) AS held
FROM workers AS w
ORDER BY w.boot DESC
LIMIT $1::integer
