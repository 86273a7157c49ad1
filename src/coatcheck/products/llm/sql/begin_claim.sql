-- Begin the transaction of a claim and take its lock ("CoatLl"): llm jobs are claimed one claim at a
-- time. The lock is held until the transaction ends. It is taken before the snapshot of the first
-- read, so that this read counts every permit of earlier claims.
BEGIN;
SELECT pg_advisory_xact_lock(x'436F61744C6C'::bigint)
