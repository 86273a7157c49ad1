-- Serialise changes to what code publishes, until the transaction ends: which definition is in force
-- depends on all that are published. A process that is frozen meanwhile is cut off after 10 seconds:
-- until then no worker can register. By the transaction's own timeout, because a client may be frozen
-- between two messages of one statement, which counts as neither idle nor running; and from the moment
-- the lock is held, because it may have to wait for others.
SELECT pg_advisory_xact_lock($1::bigint), set_config('transaction_timeout', '10s', true)
