-- How many jobs a list has, counting no further than so many.
--
-- $1-$6 see page_filter.sql   $7 how many   $8 older than this id
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE /* include jobs/page_filter.sql */
      AND j.id < $8::uuid
    LIMIT $7
) AS counted
