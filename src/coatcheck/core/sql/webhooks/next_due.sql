-- Seconds until the next delivery is due, below 0 if one is, or NULL.
SELECT extract(epoch FROM min(d.due_at) - clock_timestamp())::double precision
FROM webhook_deliveries AS d
WHERE d.status = 'pending'
