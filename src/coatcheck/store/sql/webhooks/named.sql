-- The targets that submissions name, $1 and $12 as in jobs/submit.sql: for webhooks/enlist.sql.
SELECT s.org_id, (s.options ->> 'webhook_target')::uuid AS id, s.options ->> 'webhook_url' AS url
    FROM unnest($1::text[], $12::jsonb[]) AS s (org_id, options)
    WHERE s.options ->> 'webhook_target' IS NOT NULL
