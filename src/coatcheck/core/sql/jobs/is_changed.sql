-- Whether a row of `walked` counts as changed: a transaction wrote it that `known` does not see and
-- `seen` does. Without `known`, whether the job has not ended. Included by the statements that search
-- for changes; `horizon` is h, `walked` is w.
CASE WHEN h.known IS NULL THEN w.state NOT IN ('completed', 'failed', 'cancelled')
     ELSE h.is_foreign
          OR (w.written_by >= h.known_from
              AND NOT pg_visible_in_snapshot(w.written_by::text::xid8, h.known))
END
AND pg_visible_in_snapshot(w.written_by::text::xid8, h.seen)
