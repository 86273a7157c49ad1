-- The latest progress of running jobs, fenced by the lease. No transition.
UPDATE jobs AS j
SET progress = p.fraction, progress_note = coalesce(p.note, j.progress_note), updated_at = now()
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::real[], $5::text[])
    AS p (org_id, id, lease, fraction, note)
WHERE j.org_id = p.org_id AND j.id = p.id AND j.lease = p.lease
