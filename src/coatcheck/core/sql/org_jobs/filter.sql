-- The filter of a list of jobs: included by the statements that walk jobs. NULL does not narrow it. Sent
-- with custom plans, so that filters which are NULL are not part of the plan.
--
-- $4 states   $5 lane   $6 services   $7 no service of these   $8 endpoint   $9 reader: theirs, and
-- what anyone may read   $10 owner   $11 error code   $12 created at or after   $13 created before
-- $14 request id   $15 whether only those that can be retried and have not been
($4::text[] IS NULL OR j.state = ANY ($4::text[]::job_state[]))
       AND ($5::text IS NULL OR j.lane = $5::text::job_lane)
       AND ($6::text[] IS NULL OR job_service(j.endpoint, j.flow) = ANY ($6))
       AND ($7::text[] IS NULL OR job_service(j.endpoint, j.flow) <> ALL ($7))
       AND ($8::text IS NULL OR j.endpoint = $8 OR (j.endpoint = /* upstream endpoint */ AND j.flow = $8))
       AND ($9::text IS NULL OR j.owner IN ('*', $9))
       AND ($10::text IS NULL OR j.owner = $10)
       AND ($11::text IS NULL OR j.error_code = $11)
       AND ($12::timestamptz IS NULL OR j.created_at >= $12)
       AND ($13::timestamptz IS NULL OR j.created_at < $13)
       AND ($14::text IS NULL OR j.request_id = $14)
       AND (NOT $15::boolean OR (
           j.state IN ('failed', 'cancelled') AND j.payload IS NOT NULL
           AND NOT EXISTS (SELECT FROM jobs AS r WHERE r.org_id = j.org_id AND r.retry_of = j.id)
       ))
