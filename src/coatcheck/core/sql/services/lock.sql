-- Let one at a time register or remove a service, until its transaction ends: which of its secrets are
-- retired depends on which there are.
SELECT pg_advisory_xact_lock($1::integer, hashtext($2::text || '/' || $3::text))
