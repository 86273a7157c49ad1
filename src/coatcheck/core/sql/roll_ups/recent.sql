-- Recent counts of one lane of an organisation, minute by minute, for forecasts. The current minute is
-- among them; `seconds` is how much of it has passed.
--
-- $1 org   $2 lane   $3 minutes
SELECT r.started, r.waits, r.runs,
       least(60, date_part('epoch', now() - r.at))::double precision AS seconds
FROM job_roll_ups AS r
WHERE r.org_id = $1 AND r.step_seconds = 60 AND r.lane = $2::text::job_lane
  AND r.at >= date_trunc('minute', now()) - $3::integer * interval '1 minute'
ORDER BY r.at DESC
