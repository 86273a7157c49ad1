-- Add a part to a run, and, if the request has them, its tasks. The transaction has locked the run.
--
-- $1 org   $2 batch   $3 run   $4 part   $5 source   $6 its key   $7 pieces   $8 bytes   $9 upload
-- $10 idempotency key   $11 fingerprint   $12 whether this statement writes all tasks of the part
-- $13 lines   $14-$17 tasks: ids, payloads, custom ids, flows   $18 jobs.webhook of the tasks
-- $19 ETag of the source   $20 for a rerun of the whole batch: of runs with numbers below this
WITH run AS (
    UPDATE runs AS r
    SET tasks = r.tasks + cardinality($14::uuid[]), lines = r.lines + $13::bigint,
        bad_lines = r.bad_lines + $13::bigint - cardinality($14::uuid[])
    WHERE r.org_id = $1 AND r.id = $3
    RETURNING r.org_id, r.id, r.tasks - cardinality($14::uuid[]) AS first
),
part AS (
    INSERT INTO batch_parts (
        org_id, id, batch_id, run_id, position, source, source_key, source_pieces, source_bytes,
        upload_id, idempotency_key, fingerprint, state, lines, bad_lines, tasks, source_etag,
        source_before
    )
    SELECT $1, $4, $2, $3, (
               SELECT coalesce(max(p.position), 0) + 1
               FROM batch_parts AS p
               WHERE p.org_id = $1 AND p.run_id = $3
           ), $5::text, $6::text, $7::integer, $8::bigint, $9::uuid, $10::text, $11::bytea,
           CASE WHEN $12::boolean THEN 'done' ELSE 'pending' END, $13, $13 - cardinality($14::uuid[]),
           cardinality($14::uuid[]), $19::text, $20::integer
),
written AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, request_id, run_id,
        task_index, custom_id, webhook
    )
    SELECT $1, t.id, b.lane, b.endpoint, t.flow, b.failures_max, t.payload, b.owner, b.request_id,
           r.id, r.first + t.number - 1, t.custom_id, $18::smallint
    FROM batches AS b
    CROSS JOIN run AS r
    CROSS JOIN unnest($14::uuid[], $15::bytea[], $16::text[], $17::text[]) WITH ORDINALITY
        AS t (id, payload, custom_id, flow, number)
    WHERE b.org_id = $1 AND b.id = $2
)
SELECT r.first FROM run AS r
