-- Jobs by id, for every reader that arrived while the last read was in flight. Long results are left
-- out: 500 of them would not fit into memory. result.sql reads one for one job at a time.
--
-- $1 orgs   $2 ids   $3 bytes that a result may have
SELECT /* include jobs/view_columns.sql */,
       CASE WHEN octet_length(j.result) <= $3::integer THEN j.result END AS result
FROM unnest($1::text[], $2::uuid[]) AS wanted (org_id, id)
JOIN jobs AS j ON j.org_id = wanted.org_id AND j.id = wanted.id
