-- Let one at a time change what code publishes, until its transaction ends: which definition is in force
-- depends on all that are published. A process that is frozen in the middle of it is cut off soon: until
-- then no worker can be registered.
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), pg_advisory_xact_lock($1::bigint)
