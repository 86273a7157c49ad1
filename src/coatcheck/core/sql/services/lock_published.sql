-- Let one at a time change what code publishes, until its transaction ends: which definition is in force
-- depends on all that are published. A process that is frozen in the middle of it is cut off after 10
-- seconds: until then no worker can be registered. By the transaction's own timeout, because a client may
-- be frozen between two messages of one statement, which counts as neither idle nor running; and from the
-- moment on that the lock is held, because others may be waited for.
SELECT pg_advisory_xact_lock($1::bigint), set_config('transaction_timeout', '10s', true)
