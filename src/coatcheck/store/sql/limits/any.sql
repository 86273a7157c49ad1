-- Whether there is any limit at all: workers skip claim_limited.sql while there is none.
SELECT EXISTS (SELECT FROM concurrency_limits) OR EXISTS (SELECT FROM run_limits)
