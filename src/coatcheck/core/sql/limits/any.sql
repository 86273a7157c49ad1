-- What workers have to know before they claim: whether there is any limit at all, because they skip
-- claim_limited.sql while there is none; and whether there is more than one organisation, because
-- only then they keep slots for those that hold none.
SELECT EXISTS (SELECT FROM concurrency_limits) OR EXISTS (SELECT FROM run_limits) AS limited,
       (/* include limits/shared.sql */) AS shared
