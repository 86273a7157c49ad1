-- The definitions that live workers publish. Included by mark_served.sql. Workers of the same code
-- publish the same list: each list is unnested once.
SELECT d.digest
FROM (
    SELECT DISTINCT w.publishes FROM workers AS w WHERE /* include workers/is_live.sql */
) AS live
CROSS JOIN LATERAL unnest(live.publishes) AS d (digest)
