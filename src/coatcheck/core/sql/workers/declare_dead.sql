-- Say that workers are dead: their leases end now, not when their time is up. Only for who has proof:
-- the parent that has reaped the process, or a process of the same host that finds it gone. Answers
-- those that nobody had said it of before.
--
-- Should one be alive all the same, its next heartbeat finds no registration: it stops what it runs
-- and registers anew, and what it still hands in is refused by the fence.
--
-- $1 boots
UPDATE workers SET died_at = now()
WHERE boot = ANY ($1::bigint[]) AND died_at IS NULL
RETURNING boot
