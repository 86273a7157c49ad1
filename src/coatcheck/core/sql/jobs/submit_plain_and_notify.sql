-- submit_plain.sql with its notification in the same transaction: for a few jobs at a quiet time, when
-- another round trip would show and nobody else wants the lock that NOTIFY takes.
--
-- $10 channel   $11 payload
WITH created AS (
    /* include jobs/submit_plain.sql */
)
SELECT pg_notify($10::text, $11::text)
