-- Whether each target can be reached, as last recorded.
SELECT t.name, t.unreachable_since, t.next_try_at, t.last_error
FROM llm_targets AS t
ORDER BY t.name
