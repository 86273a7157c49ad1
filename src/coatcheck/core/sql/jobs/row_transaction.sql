-- The transaction that wrote the current version of a job's row, as a number that never wraps around:
-- included by the statements that search for changes. A row holds only the lower half of it; it was
-- written before next_id of `horizon`, and less than one wrap of the lower half ago, because no job is
-- kept that long.
(h.next_id - ((h.next_id - j.xmin::text::bigint) & 4294967295))
