"""Creates what ``up`` needs to serve: a pepper, a sealing key, an organisation, an API key."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coatcheck.cli import data_dir
from coatcheck.cli.errors import Misconfigured
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.tenants import ALL_SCOPES, DEFAULT_ORG, KeyText, OrgLimits

DEV_USER: Final = "dev"
_DEV_KEY_NAME: Final = "dev key, made by coatcheck up"
_PEPPER_BYTES: Final = 32
_SECRET_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class DevKey:
    """The API key of the user ``dev``, and the file that holds it."""

    path: Path
    text: str
    is_new: bool
    is_revoked: bool


def keep_pepper(folder: Path, given: str) -> tuple[str, bool]:
    """The pepper to use, and whether earlier keys were created with another one.

    It is the ``given`` pepper, else the stored one, else a new one. It is stored in the folder,
    where the commands that create keys find it.
    """
    stored = data_dir.stored_pepper(folder)
    pepper = given or stored or secrets.token_hex(_PEPPER_BYTES)
    if pepper != stored:
        data_dir.write(folder / data_dir.KEY_PEPPER, pepper)
    return pepper, stored is not None and pepper != stored


def keep_secret_keys(folder: Path, given: tuple[str, ...]) -> str:
    """The keys to seal secrets with: the ``given`` keys, then the stored ones.

    Stored keys may have sealed something already. Without any key a new one is created. The keys
    are stored in the folder, where the commands find them.
    """
    stored = (data_dir.stored_secret_keys(folder) or "").split()
    keys = [*given, *(key for key in stored if key not in given)]
    keys = keys or [secrets.token_hex(_SECRET_KEY_BYTES)]
    if keys != stored:
        data_dir.write(folder / data_dir.SECRET_KEYS, "\n".join(keys))
    return " ".join(keys)


async def bootstrap(dsn: str, folder: Path, *, pepper: str, preset: str) -> DevKey:
    """Create the organisation ``default``, its user ``dev`` and their key, unless they exist.

    Safe to run again after a crash at any point. A revoked key stays revoked until another is
    preset or the file is deleted.
    """
    db = Connection(dsn, name="bootstrap")
    try:
        await tenants.create_org(db, DEFAULT_ORG, "Default", OrgLimits())
        return await _dev_key(db, folder / data_dir.DEV_KEY, pepper.encode(), preset)
    finally:
        await db.close()


async def _dev_key(db: Connection, path: Path, pepper: bytes, preset: str) -> DevKey:
    stored = _stored_key(path)
    wanted = _parsed(preset) or stored or api_keys.mint()
    is_new = wanted != stored
    if is_new:
        if stored is not None:
            # Before the file is overwritten: afterwards nobody knows the old key.
            await tenants.revoke(db, DEFAULT_ORG, stored.key_id)
        data_dir.write(path, wanted.text)
    known = await tenants.get_key(db, DEFAULT_ORG, wanted.key_id)
    is_revoked = known is not None and known.revoked_at is not None and not is_new
    if known is None:
        await tenants.create_key(
            db,
            DEFAULT_ORG,
            wanted.key_id,
            user=DEV_USER,
            name=_DEV_KEY_NAME,
            digest=wanted.digest(pepper),
            scopes=ALL_SCOPES,
        )
    elif not is_revoked:
        # Its secret or the pepper may have changed.
        await tenants.reset_key(db, DEFAULT_ORG, wanted.key_id, wanted.digest(pepper))
    return DevKey(path, wanted.text, is_new, is_revoked)


def _stored_key(path: Path) -> KeyText | None:
    text = data_dir.read(path)
    if text is None:
        return None
    key = _parsed(text)
    if key is None:
        raise Misconfigured(
            f"{path} does not contain an API key\nDelete the file to get a new key."
        )
    return key


def _parsed(text: str) -> KeyText | None:
    return api_keys.parse(text.encode())
