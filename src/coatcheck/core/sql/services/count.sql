-- How many services an organisation has registered; by the primary key.
SELECT count(*) FROM services WHERE org_id = $1
