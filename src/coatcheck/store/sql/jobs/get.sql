-- Jobs by id, for every reader that arrived while the last read was in flight.
SELECT /* include jobs/view_columns.sql */, j.result
FROM unnest($1::text[], $2::uuid[]) AS wanted (org_id, id)
JOIN jobs AS j ON j.org_id = wanted.org_id AND j.id = wanted.id
