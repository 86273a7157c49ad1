-- How many jobs such a list has, counting no further than $9.
--
-- $1-$9 see page_candidates.sql
WITH RECURSIVE /* include jobs/page_candidates.sql */
SELECT count(*) FROM (SELECT FROM candidates LIMIT $9) AS counted
