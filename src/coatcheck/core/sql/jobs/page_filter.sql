-- The filter of a page of jobs: included by page.sql and page_total.sql, which share $1 to $6.
--
-- Tasks are not listed. Their ids are hashes, spread over all values; those of other jobs begin with a
-- time. So a list has bounds on ids, between which there is hardly a task to skip: the id of the year
-- 2004, here, and that of tomorrow, by the caller.
--
-- Sent with custom plans, so that filters which are NULL are not part of the plan.
--
-- $1 org   $2 endpoints   $3 prefix of the flow   $4 states   $5 lane
-- $6 owner: theirs, and what anyone may read
j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND ($2::text[] IS NULL OR j.endpoint = ANY ($2))
  AND ($3::text IS NULL OR starts_with(j.flow, $3))
  AND ($4::text[] IS NULL OR j.state = ANY ($4::text[]::job_state[]))
  AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
  AND ($6::text IS NULL OR j.owner IN ('*', $6))
