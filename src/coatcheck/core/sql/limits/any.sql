-- What workers have to know before they claim: whether there is any limit, because they skip
-- claim_limited.sql otherwise; and whether there is more than one organisation, because only then they
-- reserve slots for those that hold none.
SELECT EXISTS (SELECT FROM concurrency_limits) OR EXISTS (SELECT FROM run_limits) AS limited,
       (/* include limits/shared.sql */) AS shared
