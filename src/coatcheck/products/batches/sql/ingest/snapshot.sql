-- Everything that the ingest of a part needs, in the order of IngestSnapshot.
--
-- A part is next if no part before it is pending. A failed part does not delay it: if that is redriven
-- later, its tasks follow those that exist by then. A rerun also waits for the earlier runs: one that
-- it replaces may still be stopping.
--
-- $1 org   $2 part
SELECT p.org_id, p.batch_id, p.run_id, p.id, p.source, p.source_key, p.source_pieces,
       p.source_bytes, p.upload_id, p.state,
       NOT EXISTS (
           SELECT
           FROM batch_parts AS e
           WHERE e.org_id = p.org_id AND e.run_id = p.run_id AND e.position < p.position
             AND e.state = 'pending' AND e.state <> 'done'
       ) AS is_next,
       r.tasks, p.source_offset, p.lines, p.bad_lines, p.tasks, taken_from.run,
       coalesce(parent.tasks, 0), taken_from.selection::text, b.owner, b.endpoint, b.lane::text,
       b.failures_max, b.payload_prefix, b.payload_suffix, b.rate_key,
       r.webhook_target IS NOT NULL AND 'task.failed' = ANY (b.webhook_events),
       b.request_id,
       r.cancel_requested_at IS NOT NULL OR r.completed_at IS NOT NULL OR b.deleted_at IS NOT NULL,
       p.source_etag,
       (SELECT o.backlog_max FROM orgs AS o WHERE o.org_id = p.org_id), r.number, p.source_before,
       p.source = 'rerun' AND EXISTS (
           SELECT
           FROM runs AS e
           WHERE e.org_id = r.org_id AND e.group_id = r.group_id AND e.number < r.number
             AND e.completed_at IS NULL
       ) AS waits_for_a_run
FROM batch_parts AS p
JOIN runs AS r ON r.org_id = p.org_id AND r.id = p.run_id
JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id
CROSS JOIN LATERAL (
    SELECT coalesce(p.source_run, r.parent_run) AS run,
           CASE WHEN p.source_run IS NULL THEN r.selection ELSE p.source_selection END AS selection
) AS taken_from
LEFT JOIN runs AS parent ON parent.org_id = r.org_id AND parent.id = taken_from.run
WHERE p.org_id = $1 AND p.id = $2
