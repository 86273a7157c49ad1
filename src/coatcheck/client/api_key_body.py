"""Data types for credentials: API keys, and the caller's own."""

from __future__ import annotations

from datetime import datetime

import msgspec


class KeyRate(msgspec.Struct, frozen=True):
    """A number of requests per window of seconds."""

    requests: int
    seconds: int


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key of an organisation. Only the answer to ``api_keys.create`` has the ``key``."""

    id: str
    org_id: str
    user: str
    name: str
    scopes: tuple[str, ...]
    rate_limit: KeyRate | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    key: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.user}>"


class Caller(msgspec.Struct, frozen=True):
    """The owner of a credential. ``kind`` is ``key``, ``user`` (a user's token) or ``service``.

    ``operator``: it may read every organisation of the deployment.
    """

    org_id: str
    kind: str
    user: str | None = None
    key_id: str | None = None
    scopes: tuple[str, ...] = ()
    operator: bool = False
