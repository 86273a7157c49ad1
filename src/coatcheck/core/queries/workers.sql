-- name: declare_dead
-- Declare workers dead: their leases end now, not when they expire. Only for callers with proof: the
-- parent that has reaped the process, or a process of the same host that finds no such process. Returns
-- those that were not declared dead before.
--
-- If one is alive all the same, its next heartbeat finds no registration: it stops its jobs and
-- registers anew, and the fence rejects what it still reports.
UPDATE workers SET died_at = now()
WHERE boot = ANY (:boots::bigint[]) AND died_at IS NULL
RETURNING boot

-- name: deregister
-- Deregister a worker that stops cleanly and holds nothing. What it has recorded since its last exchange
-- may have left rows in claims.
WITH over AS (
    DELETE FROM claims AS k
    WHERE k.lease >> 40 = :boot
      AND NOT EXISTS (
          SELECT FROM held_jobs AS h WHERE h.org_id = k.org_id AND h.lease = k.lease OFFSET 0
      )
)
DELETE FROM workers WHERE boot = :boot

-- name: heartbeat
-- Renew every lease of a worker at once, by one row. Returns nothing if its registration was deleted, or
-- if it was declared dead: its leases have ended, and it must stop its jobs. Also returns which of its
-- jobs are to be cancelled, in case the notification was lost.
WITH renewed AS (
    UPDATE workers SET last_seen_at = now() WHERE boot = :boot AND died_at IS NULL RETURNING boot
)
SELECT array(
    SELECT h.id FROM held_jobs AS h WHERE h.boot = :boot AND h.state = 'cancel_requested'
) AS cancel_requested
FROM renewed

-- name: held_jobs
-- The jobs that a worker holds: the id and the lease of each claim of its boot that has not ended, and
-- whether the job has started. Always at least one row, which says whether a standby answered.
SELECT s.is_standby, h.id, h.lease, h.state IN ('processing', 'finalizing') AS begun
FROM (SELECT pg_is_in_recovery() AS is_standby) AS s
LEFT JOIN held_jobs AS h ON h.boot = :boot

-- name: is_live
-- Whether the worker `w` is live, as far as its row says: it was seen within the shortest of its lease
-- times, and is not recorded as dead. Included by the statements that need to know who publishes what,
-- and by list.
w.died_at IS NULL AND w.last_seen_at > now() - interval '1 second'
    * least(w.urgent_seconds, w.standard_seconds, w.bulk_seconds)

-- name: list
-- The worker processes, newest first: the endpoints of each, how many jobs it holds, and whether it was
-- seen within the shortest of its lease times and is not known to be dead.
SELECT w.boot, w.name, w.version,
       (/* include workers/is_live */) AS alive,
       w.started_at, w.last_seen_at, w.lanes, w.slots, w.endpoints,
       (SELECT count(*) FROM held_jobs AS h WHERE h.boot = w.boot) AS held
FROM workers AS w
ORDER BY w.boot DESC
LIMIT :rows_max::integer

-- name: newest
-- The boot number of the worker that registered last; 0 if none has.
SELECT coalesce(max(w.boot), 0) AS boot FROM workers AS w

-- name: of_host
-- The workers of a host that are not recorded as dead: the process of each, and the folder of its
-- isolated jobs. Reads the whole table, which has a row for each worker that runs or recently ended.
SELECT w.boot, w.pid, w.process_ticks, w.temp_dir
FROM workers AS w
WHERE w.host = :host AND w.died_at IS NULL

-- name: of_process
-- The workers of a process that are not recorded as dead.
SELECT w.boot, w.temp_dir
FROM workers AS w
WHERE w.process = :process AND w.died_at IS NULL

-- name: register
-- Register a worker process. Its boot number is the high half of every lease it will take.
--
-- :bulk_seconds  lease times of the lanes   :lanes  lanes that it serves
-- :slots  how many jobs of each of these it runs at a time
-- :reserved  how many of these slots it reserves   :process  its process
-- :process_ticks  its start, or NULL   :temp_dir  the folder of its isolated jobs
INSERT INTO workers
    (name, version, urgent_seconds, standard_seconds, bulk_seconds, endpoints, lanes, slots, reserved,
     process, host, pid, process_ticks, temp_dir)
VALUES (:name, :version, :urgent_seconds, :standard_seconds, :bulk_seconds, :endpoints, :lanes, :slots, :reserved, :process, :host, :pid, :process_ticks, :temp_dir)
RETURNING boot

-- name: set_held_threads
-- Record the endpoints for which a worker has no thread left, because abandoned handlers still run in
-- them. By its key; changes nothing for a worker that is no longer registered. Not a part of the
-- heartbeat: it is sent when it changes, which is rare.
--
-- :threads  how many threads each
UPDATE workers
SET threads_held = (
    SELECT coalesce(jsonb_object_agg(held.endpoint, held.threads), '{}')
    FROM unnest(:endpoints::text[], :threads::integer[]) AS held (endpoint, threads)
)
WHERE boot = :boot
