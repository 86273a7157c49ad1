-- Record the outcomes of events that were sent. An acknowledged event stays acknowledged.
--
-- $1 orgs, $2 hours, $3 measures, $4 parts   $5 whether acknowledged   $6 since when its outcome is
-- unknown, or NULL   $7 seconds until the next attempt   $8 errors, or NULL
UPDATE stripe_meter_events AS e
SET status = CASE WHEN m.acknowledged THEN 'acknowledged' ELSE 'pending' END,
    ended_at = CASE WHEN m.acknowledged THEN now() END,
    attempted_at = m.doubtful_since,
    due_at = now() + m.seconds * interval '1 second',
    last_error = m.error
FROM unnest(
    $1::text[], $2::timestamptz[], $3::text[], $4::integer[], $5::boolean[], $6::timestamptz[],
    $7::double precision[], $8::text[]
) AS m (org_id, hour, measure, part, acknowledged, doubtful_since, seconds, error)
WHERE e.org_id = m.org_id AND e.hour = m.hour AND e.measure = m.measure AND e.part = m.part
  AND e.status = 'pending'
