-- The organisation of an event: the one that it names, else that of its customer, else that of its
-- subscription. Locked, so that the events of one organisation are applied one after another.
--
-- $1 org or NULL, $2 customer or NULL, $3 subscription or NULL
SELECT o.org_id FROM orgs AS o
WHERE o.org_id = coalesce(
    $1,
    (SELECT c.org_id FROM orgs AS c WHERE c.stripe_customer = $2 ORDER BY c.org_id LIMIT 1),
    (SELECT s.org_id FROM stripe_subscriptions AS s WHERE s.subscription_id = $3
     ORDER BY s.org_id LIMIT 1)
)
FOR UPDATE
