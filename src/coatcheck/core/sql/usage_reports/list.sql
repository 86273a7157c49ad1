-- An organisation's reports, the newest period first. Walks the primary key. They are few: as many as
-- are made within their retention.
--
-- $1 org
SELECT r.id, r.period, r.first_day, r.last_day, r.created_at, r.totals::text AS totals
FROM usage_reports AS r
WHERE r.org_id = $1
ORDER BY r.last_day DESC, r.period, r.id
