"""Creates, lists and revokes keys for ``coatcheck keys``: on a server, or in the database.

The database is for the first key: a server would require a key to create one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from coatcheck.cli import data_dir
from coatcheck.cli.data_dir import ADDRESS, DEV_KEY
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.profiles import read_configuration
from coatcheck.cli.server_address import (
    NOBODY,
    ORG_VARIABLE,
    ServerConfig,
    ServerOptions,
    look,
    ready,
)
from coatcheck.client import ApiKey, AuthenticationError, Client, KeyRate, NotFoundError
from coatcheck.domain.tenants import DEFAULT_ORG

DATABASE_VARIABLE: Final = "COATCHECK_DATABASE_URL"


class Register(Protocol):
    """The keys of one organisation."""

    @property
    def org(self) -> str: ...

    def create(
        self,
        name: str,
        *,
        user: str | None,
        scopes: Iterable[str] | None,
        expires_in_seconds: int | None,
        rate_limit: KeyRate | None,
    ) -> ApiKey:
        """Create a key; returns it with its secret."""

    def list_all(self) -> list[ApiKey]: ...

    def revoke(self, key_id: str) -> bool:
        """Revoke a key; returns whether it exists."""


def register_at(options: ServerOptions) -> Register:
    """The register that the options, the environment and this folder select.

    If a key is configured, it is a server, called with that key. Otherwise it is the database in
    COATCHECK_DATABASE_URL. Without that it is the ``up`` of this folder: its server if its dev-key
    file exists, else its database.
    """
    server = look(options, read_configuration())
    folder, _ = data_dir.choose(options.data)
    database_is_named = options.data is None and bool(os.environ.get(DATABASE_VARIABLE))
    key_is_found = options.data is None and server.token_from == str(folder / DEV_KEY)
    server_is_named = server.url_from not in (NOBODY, str(folder / ADDRESS))
    if (
        (server.token is not None and not (key_is_found and database_is_named))
        or options.url is not None
        or options.profile is not None
        or not (database_is_named or (folder.is_dir() and not server_is_named))
    ):
        return ServedKeys(ready(options, server))
    # Imported late: talking to a server needs no database code.
    from coatcheck.cli.stored_keys import StoredKeys

    org = options.org or os.environ.get(ORG_VARIABLE) or DEFAULT_ORG
    return StoredKeys(data_dir.settings_for(options.data), org)


class ServedKeys:
    """The keys on a server, over its public API."""

    def __init__(self, at: ServerConfig) -> None:
        assert at.org is not None, "it is ready"
        self.org = at.org
        self._at = at

    def create(
        self,
        name: str,
        *,
        user: str | None,
        scopes: Iterable[str] | None,
        expires_in_seconds: int | None,
        rate_limit: KeyRate | None,
    ) -> ApiKey:
        with self._connected() as client:
            return client.api_keys.create(
                name,
                user=user,
                scopes=scopes,
                expires_in_seconds=expires_in_seconds,
                rate_limit=rate_limit,
            )

    def list_all(self) -> list[ApiKey]:
        with self._connected() as client:
            return list(client.api_keys.list_all())

    def revoke(self, key_id: str) -> bool:
        with self._connected() as client:
            try:
                client.api_keys.revoke(key_id)
            except NotFoundError:
                return False
        return True

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        try:
            with self._at.client() as client:
                yield client
        except AuthenticationError:
            if Path(self._at.token_from).name != DEV_KEY:
                raise
            raise Misconfigured(
                f"the server refuses the key in {self._at.token_from}: it was revoked\n"
                "Delete that file, then run `coatcheck keys create` or restart `coatcheck up` to "
                "get a new key."
            ) from None
