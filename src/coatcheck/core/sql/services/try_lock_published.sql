-- The lock of lock_published.sql, if it is free now; returns whether it was. With the same timeout.
SELECT pg_try_advisory_xact_lock($1::bigint), set_config('transaction_timeout', '10s', true)
