-- Write the webhooks of the jobs that were just created: included by the statements that create jobs,
-- from their `created`. $1 org, $2 id and $12 options are as in jobs/submit.sql; the options of a job
-- with webhooks have `webhooks`: a list of target, url and tells.
--
-- Not a join: pinned plans would compare each row with each. This way it is a hashed lookup.
INSERT INTO job_webhooks (org_id, job_id, target_id, tells)
    SELECT s.org_id, s.id, w.target, w.tells
    FROM unnest($1::text[], $2::uuid[], $12::jsonb[]) AS s (org_id, id, options)
    CROSS JOIN LATERAL jsonb_to_recordset(s.options -> 'webhooks') AS w (target uuid, tells smallint)
    WHERE CASE WHEN w.target IS NULL THEN false ELSE s.id IN (SELECT c.id FROM created AS c) END
