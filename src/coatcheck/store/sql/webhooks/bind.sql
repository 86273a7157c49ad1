-- Note who is to be told of the jobs that were just created: included by the statements that create
-- jobs, from their `created`. $1 org, $2 id and $12 options are as in jobs/submit.sql; the options of
-- a job that is told of have webhook_target and webhook_url.
--
-- Not a join: with the plans pinned it would compare each with each. This way it is a hashed lookup.
INSERT INTO job_webhooks (org_id, job_id, target_id)
    SELECT s.org_id, s.id, (s.options ->> 'webhook_target')::uuid
    FROM unnest($1::text[], $2::uuid[], $12::jsonb[]) AS s (org_id, id, options)
    WHERE CASE
        WHEN s.options ->> 'webhook_target' IS NULL THEN false
        ELSE s.id IN (SELECT c.id FROM created AS c)
    END
