"""Where ``coatcheck keys`` makes, finds and revokes keys: at a server, or in the database itself.

The database is for the first key of all, which no server can be asked for without a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from coatcheck.cli import data_dir
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.profiles import read_configuration
from coatcheck.cli.remote import NOBODY, ORG_VARIABLE, Place, Server, look, ready
from coatcheck.cli.secret_files import ADDRESS, DEV_KEY
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
        """A new key, with its secret."""

    def list_all(self) -> list[ApiKey]: ...

    def revoke(self, key_id: str) -> bool:
        """Whether there is such a key."""


def register_at(place: Place) -> Register:
    """The one that the options, the environment and this folder lead to.

    Whoever names a key has a server asked, with it. Without one, COATCHECK_DATABASE_URL names the
    database; and without that it is the ``up`` of this folder: its server, if the key is still
    there that it was started with, else its database.
    """
    server = look(place, read_configuration())
    folder, _ = data_dir.choose(place.data)
    database_is_named = place.data is None and bool(os.environ.get(DATABASE_VARIABLE))
    key_is_found = place.data is None and server.token_from == str(folder / DEV_KEY)
    server_is_named = server.url_from not in (NOBODY, str(folder / ADDRESS))
    if (
        (server.token is not None and not (key_is_found and database_is_named))
        or place.url is not None
        or place.profile is not None
        or not (database_is_named or (folder.is_dir() and not server_is_named))
    ):
        return ServedKeys(ready(place, server))
    # A server that is asked needs no database, and so none of what this imports.
    from coatcheck.cli.stored_keys import StoredKeys

    org = place.org or os.environ.get(ORG_VARIABLE) or DEFAULT_ORG
    return StoredKeys(data_dir.settings_for(place.data), org)


class ServedKeys:
    """Those that a server keeps, over its public API."""

    def __init__(self, at: Server) -> None:
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
        with self._asked() as client:
            return client.api_keys.create(
                name,
                user=user,
                scopes=scopes,
                expires_in_seconds=expires_in_seconds,
                rate_limit=rate_limit,
            )

    def list_all(self) -> list[ApiKey]:
        with self._asked() as client:
            return list(client.api_keys.list_all())

    def revoke(self, key_id: str) -> bool:
        with self._asked() as client:
            try:
                client.api_keys.revoke(key_id)
            except NotFoundError:
                return False
        return True

    @contextmanager
    def _asked(self) -> Iterator[Client]:
        try:
            with self._at.client() as client:
                yield client
        except AuthenticationError:
            if Path(self._at.token_from).name != DEV_KEY:
                raise
            raise Misconfigured(
                f"the key in {self._at.token_from} is refused: it was revoked\n"
                "Delete that file: then `coatcheck keys create` makes a key in the database, and "
                "so does the next start of `coatcheck up`."
            ) from None
