-- One claim of llm jobs at a time, in a transaction that begins with its lock ("CoatLl"). Held until
-- the transaction ends; taken before the look's snapshot, so that it counts every permit given out
-- before it.
BEGIN;
SELECT pg_advisory_xact_lock(x'436F61744C6C'::bigint)
