-- An organisation's jobs, newest first, a page at a time: $2 is the last id of the page before.
-- Results are left out: a page of them could be of any size.
SELECT /* include jobs/view_columns.sql */, NULL::bytea AS result
FROM jobs AS j
WHERE j.org_id = $1
  AND ($2::uuid IS NULL OR j.id < $2)
  AND ($3::text[] IS NULL OR j.state::text = ANY ($3))
  AND ($4::text IS NULL OR j.endpoint = $4)
  AND ($5::text IS NULL OR j.lane::text = $5)
ORDER BY j.id DESC
LIMIT $6
