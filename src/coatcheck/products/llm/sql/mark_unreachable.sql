-- A target could not be reached: claims skip it until it is probed again.
--
-- $1 name   $2 what went wrong   $3 seconds until the next try
INSERT INTO llm_targets (name, unreachable_since, next_try_at, last_error)
VALUES ($1, now(), now() + $3::double precision * interval '1 second', $2)
ON CONFLICT (name) DO UPDATE
SET unreachable_since = coalesce(llm_targets.unreachable_since, now()),
    next_try_at = excluded.next_try_at, last_error = excluded.last_error, seen_at = now()
