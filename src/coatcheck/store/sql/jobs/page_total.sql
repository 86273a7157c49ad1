-- How many jobs a list has, counting no further than $7.
--
-- $1-$6 see page_filter.sql
SELECT count(*)
FROM (
    SELECT
    FROM jobs AS j
    WHERE /* include jobs/page_filter.sql */
    LIMIT $7
) AS counted
