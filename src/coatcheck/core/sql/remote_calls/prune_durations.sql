-- Delete durations of work that nobody has submitted for a month.
DELETE FROM remote_paces AS p WHERE p.updated_at < now() - interval '30 days'
