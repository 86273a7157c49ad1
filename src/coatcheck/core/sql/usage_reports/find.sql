-- One report of an organisation, by its id.
--
-- $1 org   $2 report
SELECT r.id, r.period, r.first_day, r.last_day, r.created_at, r.totals::text AS totals,
       r.items::text AS items
FROM usage_reports AS r
WHERE r.org_id = $1 AND r.id = $2
