-- Serialise claims under limits. Held until the transaction ends; taken before the claim's snapshot, so
-- that the claim counts every permit given out before it.
SELECT pg_advisory_xact_lock($1::bigint)
