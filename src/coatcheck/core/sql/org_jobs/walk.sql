-- A page of an organisation's jobs, newest first: backwards along the primary key, a bounded number of
-- rows. Returns how many jobs were walked, and the last of them: the next page continues from there. If
-- no job matches, one row says so.
--
-- Tasks are not listed; jobs/page_filter.sql says why the ids have bounds.
--
-- $1 org   $2 older than this id   $3 not older than this one   $4-$15 see filter.sql
-- $16 rows to walk   $17 rows to show
WITH walked AS MATERIALIZED (
    SELECT j.id, (/* include org_jobs/filter.sql */) AS fits
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id IS NULL AND j.id < $2::uuid AND j.id >= $3::uuid
    ORDER BY j.id DESC
    LIMIT $16
),
/* include org_jobs/page.sql */
