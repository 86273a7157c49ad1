-- The catalogue of services.
--
--   source  org_id   written by
--   code    ''       derived from what workers publish (below), for every organisation
--   http    an org   that organisation, over HTTP: an upstream that Coatcheck calls
--
-- `definition` is {"versions": {"1": {"endpoints": [...]}}}; domain/catalogue.py says what an
-- endpoint has. It is read whole and cached, so nothing in it is a column of its own.
--
-- The generated columns are what a list shows of a service: its versions, and how many endpoints each
-- has, in the same order. They are computed when a service is written, so that a list reads no
-- definitions, which may have hundreds of kilobytes each.

CREATE TABLE services (
    org_id       text COLLATE "C" NOT NULL,
    service_id   text COLLATE "C" NOT NULL,
    workspace_id text COLLATE "C" NOT NULL,
    source       text NOT NULL CHECK (source IN ('code', 'http')),
    definition   jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    version_numbers jsonb NOT NULL
        GENERATED ALWAYS AS (jsonb_path_query_array(definition, '$.versions.keyvalue().key')) STORED,
    endpoint_counts jsonb NOT NULL
        GENERATED ALWAYS AS (jsonb_path_query_array(definition, '$.versions.*.endpoints.size()')) STORED,
    PRIMARY KEY (org_id, service_id),
    CONSTRAINT code_belongs_to_everybody CHECK ((source = 'code') = (org_id = ''))
);

-- Definitions that hold plain secrets: they are sealed once a sealing key is set.
CREATE INDEX services_unsealed ON services (org_id, service_id) WHERE jsonb_path_exists(
    definition,
    '$.versions.*.endpoints[*] ? (
        (exists (@.target.headers.*) && !exists (@.target.secrets_id))
        || (exists (@.remote.secrets.*) && !exists (@.remote.secrets_id))
    )'
);

-- The definitions that workers publish: one row for each definition of an endpoint that the code of some
-- worker declares, or recently declared. `resolve` in core/queries/services.sql derives the services of source 'code' from
-- them. Definitions belong to no worker: `workers.publishes` names those of each, so a fleet that
-- restarts writes none anew, and what a worker publishes ends with its row.
--
--   digest          identifies the definition; equal definitions are one row
--   position        its position in its service, for lists
--   published_at    when it was first published: of two that live workers publish, the later one is in force
--   unserved_since  since when no live worker publishes it; NULL while one does
--
-- `org_id` is empty, as that of services of code is: every organisation may call them.

CREATE TABLE published_endpoints (
    org_id         text COLLATE "C" NOT NULL DEFAULT '' CHECK (org_id = ''),
    service_id     text COLLATE "C" NOT NULL,
    version        integer NOT NULL,
    key            text COLLATE "C" NOT NULL,
    digest         text COLLATE "C" NOT NULL GENERATED ALWAYS AS (md5(definition::text)) STORED,
    definition     jsonb NOT NULL,
    position       integer NOT NULL,
    published_at   timestamptz NOT NULL DEFAULT now(),
    unserved_since timestamptz,
    PRIMARY KEY (org_id, service_id, version, key, digest)
);

-- The secrets of registered targets, sealed with a key of the deployment (coatcheck/sealing.py).
-- Definitions and payloads hold only the id, which is computed from the endpoint and the address that
-- the secrets were given for (domain/service_definition.py).
--
-- One row holds all values of one endpoint's target. The text is bound to org_id and id: in another row
-- it does not open. It names its key; `key_id` repeats that for key rotation, and cannot differ.
--
-- `retired_at`: no definition refers to it any more, because its service was removed or got another
-- address. It stays for the jobs and runs that were accepted before, and is removed after them.

CREATE TABLE service_secrets (
    org_id      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    service_id  text COLLATE "C" NOT NULL,
    -- The flow of its jobs.
    endpoint_id text COLLATE "C" NOT NULL,
    sealed      text COLLATE "C" NOT NULL,
    key_id      text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(sealed, '.', 2)) STORED,
    sealed_at   timestamptz NOT NULL DEFAULT now(),
    retired_at  timestamptz,
    PRIMARY KEY (org_id, id)
);

-- Finds the secrets to retire when a service is registered anew.
CREATE INDEX service_secrets_service ON service_secrets (org_id, service_id);
-- Finds the secrets to count and to seal anew when keys are rotated.
CREATE INDEX service_secrets_key ON service_secrets (key_id, org_id, id);
-- Finds the secrets to delete.
CREATE INDEX service_secrets_retired ON service_secrets (retired_at, org_id, id)
    WHERE retired_at IS NOT NULL;
