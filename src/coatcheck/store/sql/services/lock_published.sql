-- Let one at a time change what code publishes, until its transaction ends: which definition is in force
-- depends on all that are published.
SELECT pg_advisory_xact_lock($1::bigint)
