-- A page of the jobs of some services, newest first: the jobs of page.sql, for when that would read
-- many jobs of others to find a few. Results are left out: a page of them could have any size.
--
-- $1-$9 see page_candidates.sql; $9 is $10 and $11 together   $10 rows to skip   $11 rows at most
WITH RECURSIVE /* include jobs/page_candidates.sql */,
page AS MATERIALIZED (
    SELECT c.id FROM candidates AS c ORDER BY c.id DESC OFFSET $10 LIMIT $11
)
SELECT /* include jobs/view_columns.sql */, NULL::bytea AS result
FROM page AS p
CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = $1 AND j.id = p.id) AS j
ORDER BY j.id DESC
