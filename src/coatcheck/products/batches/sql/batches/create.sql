-- Create a batch, its first run, its first part if it has one, and the tasks of a small batch. One
-- statement, so that a batch whose key is taken leaves nothing behind.
--
-- A part whose tasks are written here is done. A batch that is not open is closed from the start. If
-- it has nothing left to ingest, it is latched at once: its total is the number of its tasks.
--
-- $1 org   $2 batch   $3 run   $4 owner   $5 service   $6 its endpoint   $7 engine's endpoint
-- $8 usage flow   $9 lane   $10 failures allowed   $11 open   $12, $13 before and after each input
-- $14 concurrency   $15 rate   $16 rate key   $17 rate of each key   $18 webhook target
-- $19 webhook events   $20 metadata   $21 seconds to keep   $22 key   $23 fingerprint   $24 request
-- $25 part   $26 source   $27 its key   $28 pieces   $29 bytes   $30 upload   $31 lines
-- $32-$35 tasks: ids, payloads, custom ids, flows   $36 jobs.webhook of the tasks
-- $37 whether this statement writes all tasks of the part   $38 ETag of the source
-- $39 secrets for the calls of its tasks
WITH created AS (
    INSERT INTO batches (
        org_id, id, current_run, owner, service, service_endpoint, endpoint, lane, failures_max,
        is_open, payload_prefix, payload_suffix, concurrency, rate_per_second, rate_key,
        rate_key_per_second, webhook_events, metadata, keep_seconds, idempotency_key, fingerprint,
        request_id
    )
    VALUES (
        $1, $2, $3, $4, $5, $6, $7, $9::text::job_lane, $10, $11, $12, $13, $14, $15, $16, $17,
        $19::text[], $20, $21, $22, $23, $24
    )
    ON CONFLICT DO NOTHING
    RETURNING org_id, id, lane
),
run AS (
    INSERT INTO runs (
        org_id, id, group_id, number, lane, endpoint, service, service_endpoint, usage_flow,
        webhook_target, secrets_id, tasks, lines, bad_lines, total, closed_at, latched_at
    )
    SELECT c.org_id, $3, c.id, 1, c.lane, $7, $5, $6, $8, $18, $39::uuid, cardinality($32::uuid[]), $31::bigint,
           $31::bigint - cardinality($32),
           CASE WHEN $37::boolean AND NOT $11 THEN cardinality($32) END,
           CASE WHEN NOT $11 THEN now() END,
           CASE WHEN $37 AND NOT $11 THEN now() END
    FROM created AS c
),
part AS (
    INSERT INTO batch_parts (
        org_id, id, batch_id, run_id, position, source, source_key, source_pieces, source_bytes,
        upload_id, state, lines, bad_lines, tasks, source_etag
    )
    SELECT c.org_id, $25, c.id, $3, 1, $26::text, $27::text, $28::integer, $29::bigint, $30::uuid,
           CASE WHEN $37 THEN 'done' ELSE 'pending' END, $31, $31 - cardinality($32),
           cardinality($32), $38::text
    FROM created AS c
    WHERE $25::uuid IS NOT NULL
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT c.org_id, t.id, c.lane, $7, t.flow, $10, t.payload, $4, $24, $3, t.number - 1,
           t.custom_id, $36::smallint
    FROM created AS c
    CROSS JOIN unnest($32::uuid[], $33::bytea[], $34::text[], $35::text[]) WITH ORDINALITY
        AS t (id, payload, custom_id, flow, number)
)
SELECT c.id FROM created AS c
