-- Whether there is any concurrency limit at all: workers skip claim_limited.sql while there is none.
SELECT EXISTS (SELECT FROM concurrency_limits)
