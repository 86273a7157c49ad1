-- The transaction that wrote a job's row as it is, as a number that never wraps around: included by the
-- statements that look for what has changed. A row holds the lower half of it only; it was written before
-- next_id of `horizon`, and less than a turn of the lower half ago, for no job is kept that long.
(h.next_id - ((h.next_id - j.xmin::text::bigint) & 4294967295))
