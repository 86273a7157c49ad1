-- A generation, its job, and its file if that exists: a task has one file.
generations AS g
JOIN jobs AS j ON j.org_id = g.org_id AND j.id = g.job_id
LEFT JOIN LATERAL (
    SELECT a.name, a.blob_key, a.media_type, a.bytes, a.sha256
    FROM artifacts AS a
    WHERE a.org_id = g.org_id AND a.job_id = g.job_id AND j.state = 'completed'
    LIMIT 1
) AS a ON true
