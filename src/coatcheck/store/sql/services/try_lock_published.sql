-- The lock of lock_published.sql, if it is free now: whether it was.
SELECT pg_try_advisory_xact_lock($1::bigint)
