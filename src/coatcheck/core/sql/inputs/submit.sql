-- Create a job together with the record of its input and its webhooks: one statement, so that there is
-- never one without the others. If the job is not created because its key or its id is taken, nothing
-- is written, and the caller deletes its blob.
--
-- The pointer to the blob is in the job's payload, and is deleted with it.
--
-- $1-$12 as in jobs/submit.sql, one job   $13 sha256   $14 bytes   $15 pieces   $16 blob key
-- $17 seconds since the blob was stored   $18 seconds it may live   $19 seconds to keep the record
WITH created AS (
    /* include jobs/submit.sql */
),
noted AS (
    INSERT INTO job_inputs (
        org_id, job_id, owner, endpoint, sha256, bytes, pieces, blob_key, forget_at
    )
    SELECT ($1::text[])[1], c.id, coalesce(($8::text[])[1], ''), ($4::text[])[1], $13::bytea,
           $14::bigint, $15::integer, $16::text,
           now() + $19::double precision * interval '1 second'
    FROM created AS c
),
copied AS (
    INSERT INTO input_copies (org_id, job_id, layer, place, stored_at, expires_at)
    SELECT ($1::text[])[1], c.id, kept.layer, kept.place, kept.stored_at, kept.expires_at
    FROM created AS c
    CROSS JOIN LATERAL (
        SELECT now() - $17::double precision * interval '1 second' AS at
    ) AS stored
    CROSS JOIN LATERAL (
        VALUES
            ('blob', $16::text, stored.at,
             stored.at + $18::double precision * interval '1 second'),
            ('database', 'payload', now(), NULL)
    ) AS kept (layer, place, stored_at, expires_at)
),
bound AS (
    /* include webhooks/add_job_webhooks.sql */
),
named AS (
    /* include webhooks/submitted_targets.sql */
),
enlisted AS (
    /* include webhooks/target_upsert.sql */
)
SELECT c.id, c.staged FROM created AS c
