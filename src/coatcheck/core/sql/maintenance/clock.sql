-- What time it is. A machine whose clock is fast would otherwise take the young for old.
SELECT clock_timestamp()
