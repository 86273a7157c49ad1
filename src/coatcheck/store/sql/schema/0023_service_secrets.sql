-- The secrets of registered targets, sealed with a key of the deployment (coatcheck/sealing.py). What a
-- definition or a payload says of them is the id, which is computed from the endpoint and the address
-- that they were given for (domain/target_secrets.py).
--
-- One row holds all values of one endpoint's target. The text is bound to org_id and id: in another row
-- it does not open. It names its key; `key_id` repeats that for whoever rotates keys, and cannot differ.
--
-- `retired_at`: no definition refers to it any more, because its service was removed or got another
-- address. It stays for the jobs and batches that were accepted before, and is removed after them.

CREATE TABLE service_secrets (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    service_id  text COLLATE "C" NOT NULL,
    -- Of its jobs it is the flow.
    endpoint_id text COLLATE "C" NOT NULL,
    sealed      text COLLATE "C" NOT NULL,
    key_id      text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(sealed, '.', 2)) STORED,
    sealed_at   timestamptz NOT NULL DEFAULT now(),
    retired_at  timestamptz,
    PRIMARY KEY (org_id, id)
);

-- What is retired when a service is registered anew.
CREATE INDEX service_secrets_service ON service_secrets (org_id, service_id);
-- What is counted and sealed anew when keys are rotated.
CREATE INDEX service_secrets_key ON service_secrets (key_id, org_id, id);
-- What is removed in the end.
CREATE INDEX service_secrets_retired ON service_secrets (retired_at, org_id, id)
    WHERE retired_at IS NOT NULL;
-- And which batches may still need it.
CREATE INDEX batches_going_on ON batches (org_id) WHERE completed_at IS NULL;

-- Definitions of before this step, which hold values: they are sealed when a key is there.
CREATE INDEX services_unsealed ON services (org_id, service_id) WHERE jsonb_path_exists(
    definition,
    '$.versions.*.endpoints[*] ? (
        (exists (@.target.headers.*) && !exists (@.target.secrets_id))
        || (exists (@.remote.secrets.*) && !exists (@.remote.secrets_id))
    )'
);
