-- Remove the limits of runs that have ended, and their tokens: common table expressions for the
-- statement that ends runs, from its `ended` (org_id, run_id).
limits_cleared AS (
    DELETE FROM run_limits AS l USING ended AS e
    WHERE l.org_id = e.org_id AND l.run = replace(e.run_id::text, '-', '')
),
tokens_cleared AS (
    DELETE FROM run_tokens AS t USING ended AS e
    WHERE t.org_id = e.org_id AND t.run = replace(e.run_id::text, '-', '')
)
