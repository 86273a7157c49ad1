-- Let one deliverer choose at a time, until its transaction ends: the next one then counts what this
-- one took. A statement of its own, because a statement sees what was there when it began.
SELECT pg_advisory_xact_lock($1)
