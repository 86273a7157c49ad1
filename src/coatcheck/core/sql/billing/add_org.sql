-- An organisation that only tokens knew until it paid. Without a plan, until its event is taken in.
INSERT INTO orgs (org_id, name, subscription)
VALUES ($1, $1, 'incomplete')
ON CONFLICT (org_id) DO NOTHING
