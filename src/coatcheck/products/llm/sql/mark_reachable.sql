-- A target has answered: claims may use it again.   $1 name
UPDATE llm_targets
SET unreachable_since = NULL, next_try_at = NULL, last_error = NULL, seen_at = now()
WHERE name = $1 AND unreachable_since IS NOT NULL
