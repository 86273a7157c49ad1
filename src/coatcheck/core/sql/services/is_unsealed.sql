-- Whether the definition of `s` holds plain secrets: the condition of the index services_unsealed.
-- Included by unsealed.sql and service_secrets/count.sql.
jsonb_path_exists(
    s.definition,
    '$.versions.*.endpoints[*] ? (
        (exists (@.target.headers.*) && !exists (@.target.secrets_id))
        || (exists (@.remote.secrets.*) && !exists (@.remote.secrets_id))
    )'
)
