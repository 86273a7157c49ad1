-- The time. A machine whose clock is fast would otherwise take new blobs for old ones.
SELECT clock_timestamp()
