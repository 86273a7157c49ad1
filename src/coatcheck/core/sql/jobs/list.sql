-- An organisation's jobs, newest first, a page at a time: $2 is the last id of the previous page.
-- Tasks are not listed: page_filter.sql says why the ids have bounds.
-- Results are left out: a page of them could have any size.
SELECT /* include jobs/view_columns.sql */, NULL::bytea AS result
FROM jobs AS j
WHERE j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND j.id < $2::uuid
  AND ($3::text[] IS NULL OR j.state::text = ANY ($3))
  AND ($4::text IS NULL OR j.endpoint = $4)
  AND ($5::text IS NULL OR j.lane::text = $5)
ORDER BY j.id DESC
LIMIT $6
