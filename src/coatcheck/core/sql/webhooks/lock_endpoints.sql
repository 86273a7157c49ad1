-- Serialise additions to an organisation's endpoints, until the transaction ends: they are counted.
SELECT pg_advisory_xact_lock($1::integer, hashtext($2))
