-- Add an organisation that was known only from tokens until it paid. It has no plan until its event is
-- applied.
INSERT INTO orgs (org_id, name, subscription)
VALUES ($1, $1, 'incomplete')
ON CONFLICT (org_id) DO NOTHING
