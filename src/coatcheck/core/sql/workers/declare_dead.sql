-- Declare workers dead: their leases end now, not when they expire. Only for callers with proof: the
-- parent that has reaped the process, or a process of the same host that finds no such process. Returns
-- those that were not declared dead before.
--
-- If one is alive all the same, its next heartbeat finds no registration: it stops its jobs and
-- registers anew, and the fence rejects what it still reports.
--
-- $1 boots
UPDATE workers SET died_at = now()
WHERE boot = ANY ($1::bigint[]) AND died_at IS NULL
RETURNING boot
