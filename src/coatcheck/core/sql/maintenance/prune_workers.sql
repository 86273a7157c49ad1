-- Delete the rows of workers that have been silent for long and hold nothing.
DELETE FROM workers AS w
WHERE w.last_seen_at < now() - greatest(
        w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    ) * interval '2 seconds'
  AND NOT EXISTS (SELECT FROM jobs AS j WHERE j.lease >> 40 = w.boot AND j.lease IS NOT NULL)
