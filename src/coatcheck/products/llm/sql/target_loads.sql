-- The targets of a claim: their turns, whether they can be reached, and the models whose jobs they
-- hold. A permit in use is a held job, which is counted here and stored nowhere. Times are seconds
-- since 1970. `limited`: whether any concurrency limit is set; most deployments have none.
--
-- $1 names   $2 endpoints
WITH held AS MATERIALIZED (
    SELECT a.target, j.flow AS model, count(*) AS jobs
    FROM jobs AS j
    JOIN llm_assignments AS a ON a.org_id = j.org_id AND a.job_id = j.id AND a.lease = j.lease
    WHERE j.lease IS NOT NULL AND j.endpoint = ANY ($2::text[])
    GROUP BY a.target, j.flow
)
SELECT n.name, t.model, extract(epoch FROM t.turn_began_at)::double precision AS turn_began,
       coalesce(t.urgent_streak, 0) AS urgent_streak, coalesce(t.picks, 0) AS picks,
       t.ended, t.served, t.unreachable_since IS NOT NULL AS unreachable,
       extract(epoch FROM t.next_try_at)::double precision AS next_try,
       extract(epoch FROM statement_timestamp())::double precision AS now,
       array(SELECT h.model FROM held AS h WHERE h.target = n.name) AS at_work_on,
       (SELECT coalesce(sum(h.jobs), 0) FROM held AS h WHERE h.target = n.name)::integer AS held,
       (SELECT EXISTS (SELECT FROM concurrency_limits)) AS limited
FROM unnest($1::text[]) AS n (name)
LEFT JOIN llm_targets AS t ON t.name = n.name
