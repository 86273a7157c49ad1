-- What a list shows of a service, beside its name: its versions, and how many endpoints each has, in
-- the same order. Computed when a service is written, so that a list reads no definition, of which
-- each may have hundreds of kilobytes.

ALTER TABLE services
    ADD COLUMN version_numbers jsonb NOT NULL
        GENERATED ALWAYS AS (jsonb_path_query_array(definition, '$.versions.keyvalue().key')) STORED,
    ADD COLUMN endpoint_counts jsonb NOT NULL
        GENERATED ALWAYS AS (jsonb_path_query_array(definition, '$.versions.*.endpoints.size()')) STORED;
