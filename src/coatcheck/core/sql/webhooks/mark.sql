-- Record the outcomes of posts: delivered, to be retried, exhausted or disabled. Fenced by the lease: a
-- delivery that has ended meanwhile, or was sent again, is left as it is.
--
-- Counts a target's failures; a success resets them. Records its Retry-After. Targets are locked in the
-- order of their key: two of these that meet wait, and do not deadlock.
--
-- $1-$7 org, id, lease, status, HTTP status or NULL, error or NULL, seconds until the retry
-- $8 seconds of the target's Retry-After, or NULL
WITH marked AS (
    UPDATE webhook_deliveries AS d
    SET status = s.status, lease = NULL, tries = least(d.tries + 1, 32767),
        last_try_at = now(), last_status_code = s.status_code, last_error = s.error,
        due_at = CASE
            WHEN s.status = 'pending' THEN now() + s.delay_seconds * interval '1 second'
        END,
        ended_at = CASE WHEN s.status <> 'pending' THEN now() END
    FROM unnest(
        $1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::integer[], $6::text[],
        $7::double precision[], $8::double precision[]
    ) AS s (org_id, id, lease, status, status_code, error, delay_seconds, peace_seconds)
    WHERE d.org_id = s.org_id AND d.id = s.id AND d.lease = s.lease
    RETURNING d.org_id, d.id, d.target_id, d.status, s.peace_seconds
),
by_target AS MATERIALIZED (
    SELECT m.org_id, m.target_id, bool_or(m.status = 'delivered') AS works,
           bool_or(m.status = 'disabled') AS gone, max(m.peace_seconds) AS peace_seconds
    FROM marked AS m
    GROUP BY m.org_id, m.target_id
),
locked AS MATERIALIZED (
    SELECT t.org_id, t.id, b.works, b.gone, b.peace_seconds
    FROM by_target AS b
    JOIN webhook_targets AS t ON t.org_id = b.org_id AND t.id = b.target_id
    WHERE NOT b.works OR b.gone OR t.failures > 0
    ORDER BY t.org_id, t.id
    FOR NO KEY UPDATE OF t
),
learnt AS (
    UPDATE webhook_targets AS t
    SET failures = CASE WHEN l.works THEN 0 ELSE least(t.failures + 1, 32767) END,
        not_before = greatest(
            t.not_before, now() + l.peace_seconds * interval '1 second'
        ),
        disabled_at = CASE WHEN l.gone THEN now() ELSE t.disabled_at END
    FROM locked AS l
    WHERE t.org_id = l.org_id AND t.id = l.id
)
SELECT m.id FROM marked AS m
