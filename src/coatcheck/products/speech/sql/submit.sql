-- Create a job together with its generation and its webhook receivers, in one statement, so that none
-- exists without the others. If the job is not created, because its key or its id is taken, nothing is
-- written.
--
-- $1-$12 as in jobs/submit.sql, one job   $13 generation   $14 user   $15 voice   $16 language
-- $17 text   $18 description   $19 the job of the clone that speaks the text
WITH created AS (
    /* include coatcheck.core:jobs/submit.sql */
),
spoken AS (
    INSERT INTO generations (
        org_id, id, user_id, job_id, voice_id, language, text, description, clone_id
    )
    SELECT ($1::text[])[1], $13::uuid, $14::text, c.id, $15::uuid, $16::text, $17::text, $18::text,
           $19::uuid
    FROM created AS c
),
bound AS (
    /* include coatcheck.core:webhooks/add_job_webhooks.sql */
),
named AS (
    /* include coatcheck.core:webhooks/submitted_targets.sql */
),
enlisted AS (
    /* include coatcheck.core:webhooks/target_upsert.sql */
)
SELECT c.id, c.staged FROM created AS c
