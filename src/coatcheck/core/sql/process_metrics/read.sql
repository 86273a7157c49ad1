-- What every process said last, and what those that are gone have counted. `alive`: it may still be
-- true of the present.
--
-- $1 seconds after which a process that says nothing is not taken to be there
SELECT m.process, m.samples,
       NOT m.ended AND m.pushed_at > now() - $1::double precision * interval '1 second' AS alive
FROM process_metrics AS m
WHERE m.samples IS NOT NULL
