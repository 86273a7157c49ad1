-- Serialise registrations and deletions of a service, until the transaction ends: which of its secrets
-- are retired depends on which exist.
SELECT pg_advisory_xact_lock($1::integer, hashtext($2::text || '/' || $3::text))
