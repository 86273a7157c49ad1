-- Let one at a time add to an organisation's endpoints, until its transaction ends: they are counted.
SELECT pg_advisory_xact_lock($1::integer, hashtext($2))
