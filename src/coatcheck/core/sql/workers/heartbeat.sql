-- Renew every lease of a worker at once, by one row. Returns nothing if its registration was deleted, or
-- if it was declared dead: its leases have ended, and it must stop its jobs. Also returns which of its
-- jobs are to be cancelled, in case the notification was lost.
WITH renewed AS (
    UPDATE workers SET last_seen_at = now() WHERE boot = $1 AND died_at IS NULL RETURNING boot
)
SELECT array(
    SELECT j.id FROM jobs AS j WHERE j.lease >> 40 = $1 AND j.lease IS NOT NULL
      AND j.state = 'cancel_requested'
) AS cancel_requested
FROM renewed
