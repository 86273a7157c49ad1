-- How many jobs the list of page.sql has, counted up to $7.
--
-- $1-$6 see page_filter.sql   $7 bound   $8 older than this id
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE /* include jobs/page_filter.sql */
      AND j.id < $8::uuid
    LIMIT $7
) AS counted
