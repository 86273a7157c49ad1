-- Retry a task as org_jobs/retry.sql does, and give the new job a generation with the same text.
--
-- $1-$8 see org_jobs/retry_created.sql   $9 the new generation
WITH /* include coatcheck.core:org_jobs/retry_created.sql */,
spoken AS (
    INSERT INTO generations (
        org_id, id, user_id, job_id, voice_id, language, text, description, clone_id
    )
    SELECT g.org_id, $9::uuid, g.user_id, c.id, g.voice_id, g.language, g.text, g.description, g.clone_id
    FROM created AS c
    JOIN generations AS g ON g.org_id = $1 AND g.job_id = $2
)
SELECT o.state::text AS state, o.payload IS NOT NULL AS input_kept,
       EXISTS (SELECT FROM created) AS created
FROM old_job AS o
