-- Make sure that these targets exist: for rows that refer to them, such as a run's.
--
-- $1 orgs   $2 ids   $3 urls
WITH named AS (
    SELECT n.org_id, n.id, n.url
    FROM unnest($1::text[], $2::uuid[], $3::text[]) AS n (org_id, id, url)
),
enlisted AS (
    /* include webhooks/target_upsert.sql */
)
SELECT
