-- submit_plain.sql, and the notification of it in the same transaction: for a few jobs at a quiet
-- time, when a round trip more would show and nobody else wants the lock that NOTIFY takes.
--
-- $10 channel   $11 what is said
WITH created AS (
    /* include jobs/submit_plain.sql */
)
SELECT pg_notify($10::text, $11::text)
