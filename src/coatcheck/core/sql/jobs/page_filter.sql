-- Which jobs a page is about: included by page.sql and page_total.sql, which share $1 to $6.
--
-- Tasks are no jobs of a list. Their ids are hashes, spread over all ids there can be; those of jobs
-- begin with a time. So the ids of a list have bounds, between which there is hardly a task to pass
-- over: they are those of the year 2004, here, and of tomorrow, by the caller.
--
-- Sent with custom plans: what was not asked for is then no part of the plan.
--
-- $1 org   $2 endpoints   $3 how the flow begins   $4 states   $5 lane
-- $6 owner: theirs, and what is anyone's
j.org_id = $1 AND j.run_id IS NULL AND j.id >= '01000000-0000-0000-0000-000000000000'
  AND ($2::text[] IS NULL OR j.endpoint = ANY ($2))
  AND ($3::text IS NULL OR starts_with(j.flow, $3))
  AND ($4::text[] IS NULL OR j.state = ANY ($4::text[]::job_state[]))
  AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
  AND ($6::text IS NULL OR j.owner IN ('*', $6))
