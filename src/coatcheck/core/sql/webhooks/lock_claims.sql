-- Serialise claims of deliveries, until the transaction ends: the next claim then counts what this one
-- took. A statement of its own, because a statement's snapshot dates from its start.
SELECT pg_advisory_xact_lock($1)
