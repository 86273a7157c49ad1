-- A page of an organisation's jobs, newest first: backwards along the primary key, so far and no
-- further. Answers how many jobs were walked over, and the last of them: from there the next page
-- goes on. If no job fits, one row says so.
--
-- Tasks are no jobs of a list; jobs/page_filter.sql says why its ids have bounds.
--
-- $1 org   $2 older than this id   $3 not older than this one   $4-$15 see filter.sql
-- $16 how many to walk over   $17 how many to show
WITH walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter.sql */) AS fits
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id IS NULL AND j.id < $2::uuid AND j.id >= $3::uuid
    ORDER BY j.id DESC
    LIMIT $16
),
/* include org_jobs/page.sql */
