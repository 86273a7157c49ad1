-- The right to long timeouts: how long the calls of an organisation's registered services may take.
--
-- NULL: as long as the deployment's setting says. A call that hangs holds a slot of a worker for all
-- of its timeout, so an operator says who may have long ones.
ALTER TABLE orgs ADD COLUMN timeout_max integer CHECK (timeout_max > 0);
