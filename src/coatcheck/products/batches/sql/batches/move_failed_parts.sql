-- Move the failed parts of a run to the next one, to be ingested from where they stopped. Tasks that
-- were ingested from them stay in the old run, where the rerun finds them.
--
-- Their positions follow the rerun's own part. A part that is a rerun itself keeps its source run if
-- the new run repeats the old one; otherwise it stays behind, because it could repeat the same tasks.
--
-- $1 org   $2 old run   $3 new run   $4 whether the new run repeats the old one
UPDATE batch_parts AS p
SET run_id = $3, state = 'pending', position = p.position + 1, redrives = p.redrives + 1,
    error_code = NULL, error_message = NULL, ingest_job = NULL, updated_at = now(),
    source_run = CASE WHEN p.source = 'rerun' THEN coalesce(p.source_run, old.parent_run) END,
    source_selection = CASE
        WHEN p.source = 'rerun' AND p.source_run IS NULL THEN old.selection
        ELSE p.source_selection
    END
FROM runs AS old
WHERE p.org_id = $1 AND p.run_id = $2 AND p.state = 'failed'
  AND (p.source <> 'rerun' OR $4::boolean)
  AND old.org_id = p.org_id AND old.id = p.run_id
RETURNING p.id
