-- Forget how long work takes that nobody has handed in for a month.
DELETE FROM remote_paces AS p WHERE p.updated_at < now() - interval '30 days'
