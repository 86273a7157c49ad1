"""Secrets of targets that no document registered: sealed and stored as a registration does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coatcheck import Settings
from coatcheck.core.service_secrets import SecretsSealer
from coatcheck.db.connection import Connection
from coatcheck.domain.registration import Concealed
from coatcheck.domain.service_definition import Address, TargetSecrets, secrets_id

SECRET_KEY = "a-sealing-key-that-is-only-ever-used-in-tests"
INSERT = """
INSERT INTO service_secrets (org_id, id, service_id, endpoint_id, sealed)
VALUES ($1, $2, 'tests', $3, $4) ON CONFLICT DO NOTHING
"""


async def store_secrets(
    settings: Settings,
    address: Address,
    values: Mapping[str, str],
    *,
    org: str = "default",
    endpoint_id: str = "tests.v1.post__x",
) -> str:
    """The id that a payload names them by."""
    id_ = secrets_id(org, endpoint_id, address)
    concealed = Concealed({}, {id_: (endpoint_id, TargetSecrets(address, dict(values)))})
    sealer = SecretsSealer(replace(settings, secret_keys=settings.secret_keys or (SECRET_KEY,)))
    (sealed,) = sealer.sealed(org, concealed)
    line = Connection(settings.database_url, name="tests")
    try:
        await line.fetch(INSERT, org, *sealed)
    finally:
        await line.close()
    return str(id_)
