-- The targets of submissions, $1 and $12 as in jobs/submit.sql: for webhooks/target_upsert.sql.
SELECT s.org_id, w.target AS id, w.url
    FROM unnest($1::text[], $12::jsonb[]) AS s (org_id, options)
    CROSS JOIN LATERAL jsonb_to_recordset(s.options -> 'webhooks') AS w (target uuid, url text)
