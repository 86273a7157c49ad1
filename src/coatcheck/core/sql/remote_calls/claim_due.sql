-- Claim calls that are due, in turns: every organisation's first, every organisation's second. An
-- organisation has at most $2 at a time, including those that the claimant already checks: one whose
-- remote hangs holds up nobody else. A claim lasts $3 seconds, unless it is renewed.
--
-- The organisations are found by skipping through the index from one to the next, $4 at most; the
-- next claim continues after the last one, which a row without a job returns.
--
-- $1 rows at most   $2 of one organisation   $3 seconds   $4 organisations   $5 the one to start after
-- $6 the claimant   $7, $8 organisations, and how many calls of each are being checked
WITH RECURSIVE seen AS (
    (
        SELECT c.org_id, 1 AS nth
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL AND c.org_id > $5::text
        ORDER BY c.org_id
        LIMIT 1
    )
    UNION ALL
    SELECT n.org_id, s.nth + 1
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT c.org_id
        FROM remote_calls AS c
        WHERE c.due_at IS NOT NULL AND c.org_id > s.org_id
        ORDER BY c.org_id
        LIMIT 1
    ) AS n
    WHERE s.nth < $4::integer
),
due AS MATERIALIZED (
    SELECT s.org_id, d.job_id, d.due_at, row_number() OVER (PARTITION BY s.org_id ORDER BY d.due_at) AS turn
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT c.job_id, c.due_at
        FROM remote_calls AS c
        WHERE c.org_id = s.org_id AND c.due_at <= now()
        ORDER BY c.due_at
        LIMIT greatest(0, $2::integer - coalesce(
            (
                SELECT u.calls
                FROM unnest($7::text[], $8::integer[]) AS u (org_id, calls)
                WHERE u.org_id = s.org_id
            ),
            0
        ))
    ) AS d
),
chosen AS MATERIALIZED (
    SELECT d.org_id, d.job_id FROM due AS d ORDER BY d.turn, d.due_at LIMIT $1::integer
),
locked AS MATERIALIZED (
    SELECT c.org_id, c.job_id
    FROM chosen AS n
    JOIN remote_calls AS c ON c.org_id = n.org_id AND c.job_id = n.job_id
    WHERE c.due_at <= now()
    FOR UPDATE OF c SKIP LOCKED
),
taken AS (
    UPDATE remote_calls AS c
    SET looker = $6::uuid, due_at = now() + $3::double precision * interval '1 second',
        polls = c.polls + 1
    FROM locked AS l
    WHERE c.org_id = l.org_id AND c.job_id = l.job_id
    RETURNING c.*
),
looked AS (
    /* include remote_calls/claimed_columns.sql */
)
SELECT * FROM looked
UNION ALL
SELECT s.org_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM seen AS s
WHERE s.nth = $4::integer
