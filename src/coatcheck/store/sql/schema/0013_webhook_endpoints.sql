-- Webhooks of every state, and endpoints that an organisation registers once for all its jobs.
--
-- What a row of job_webhooks is told of: 1 the job's end; 2 every state of the engine; 4 every state
-- in the words of the llm surface. `jobs.webhook` has the largest of its rows', and 3 where a batch
-- is told of its tasks' failures.

ALTER TABLE job_webhooks ADD COLUMN tells smallint NOT NULL DEFAULT 1 CHECK (tells IN (1, 2, 4));

-- An endpoint is a target that says itself what it is told of: `events`, of all the organisation's
-- jobs and batches. Its id is its own, so that two endpoints may have one URL. `paused_at`: what
-- there is to tell gathers until it is resumed. A secret of its own signs: `generation` says which,
-- and the one before signs along for a while after `rotated_at`. `pulled`: nothing is posted, it is
-- fetched, and `pulled_at` is when it last was. `deleted_at`: it is told nothing any more, and is
-- here for the sake of the log; it has no events then.

ALTER TABLE webhook_targets
    ADD COLUMN generation  integer NOT NULL DEFAULT 1 CHECK (generation > 0),
    ADD COLUMN pulled      boolean NOT NULL DEFAULT false,
    ADD COLUMN paused_at   timestamptz,
    ADD COLUMN rotated_at  timestamptz,
    ADD COLUMN pulled_at   timestamptz,
    ADD COLUMN deleted_at  timestamptz,
    ADD COLUMN description text NOT NULL DEFAULT '',
    ADD COLUMN events      text[] COLLATE "C",
    ADD CONSTRAINT deleted_endpoints_want_nothing CHECK (
        deleted_at IS NULL OR (events IS NULL AND disabled_at IS NOT NULL)
    );

-- The endpoints of an organisation; and whether there is any at all, which is what every statement
-- that moves jobs asks first.
CREATE INDEX webhook_targets_endpoints ON webhook_targets (org_id, id) WHERE events IS NOT NULL;
-- Those that are fetched from: the keeper removes the ones that nobody fetches from any more.
CREATE INDEX webhook_targets_pulled ON webhook_targets (org_id, id)
    WHERE pulled AND events IS NOT NULL;

-- A test message tells of an endpoint.
ALTER TABLE webhook_deliveries
    DROP CONSTRAINT webhook_deliveries_subject_kind_check,
    ADD CONSTRAINT webhook_deliveries_subject_kind_check
        CHECK (subject_kind IN ('job', 'task', 'batch', 'test'));

-- What was not tried yet: a later message about the same subject waits for it.
CREATE INDEX webhook_deliveries_untried ON webhook_deliveries (org_id, target_id, subject_id, id)
    WHERE status = 'pending' AND tries = 0;
