-- How many jobs the list of page_of_services.sql has, counted up to $9.
--
-- $1-$9 see page_candidates.sql
WITH RECURSIVE /* include jobs/page_candidates.sql */
SELECT count(*) FROM (SELECT FROM candidates LIMIT $9) AS counted
