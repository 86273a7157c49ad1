"""Where the data folder goes when nobody says, and whether it can go where somebody said."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from coatcheck.db.embedded.account import Account, server_account
from coatcheck.db.embedded.errors import EmbeddedPostgresError
from coatcheck.db.embedded.layout import Layout, nearest_existing

SYSTEM_DATA = Path("/var/lib/coatcheck")
FOLDER_NAME = ".coatcheck"


def pick_data_dir(requested: Path | None, clone: Path) -> tuple[Path, str]:
    """The data folder to use, and why, in words fit to print.

    `requested` is what the user named, if anything; `clone` is the folder to keep the data in
    otherwise. Nothing is created, but for PostgreSQL's system user when root asks. Raises
    EmbeddedPostgresError when the requested folder cannot be used, naming what is in the way.
    """
    if requested is not None:
        layout = Layout.of(requested)
        check_usable(layout, server_account(layout.cluster), suggestion=_system_folder(clone))
        return layout.data, "the folder you named"

    beside = Layout.of(clone / FOLDER_NAME)
    if os.geteuid() != 0:
        check_usable(beside, server_account(beside.cluster), suggestion=Path("~", FOLDER_NAME))
        return beside.data, f"{FOLDER_NAME} in {beside.data.parent}"

    account = server_account(beside.cluster)
    system = Layout.of(_system_folder(clone))
    closed = closed_folder(beside.data, account)
    if closed is not None:
        why = f"PostgreSQL does not run as root, and its user {account.name} cannot enter {closed}"
        return system.data, why
    if system.cluster.exists() and not beside.cluster.exists():
        return system.data, f"this clone's data has been there since {clone} was closed to others"
    return beside.data, f"{FOLDER_NAME} in {beside.data.parent}"


def check_usable(layout: Layout, account: Account, *, suggestion: Path) -> None:
    """Raise EmbeddedPostgresError if a server of `account` cannot keep its data in `layout`."""
    hint = f"Name another folder, for instance --data {suggestion}."
    existing = nearest_existing(layout.data)
    if not existing.is_dir():
        raise EmbeddedPostgresError(f"{existing} is not a folder", hint)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise EmbeddedPostgresError(f"you may not create files in {existing}", hint)
    closed = closed_folder(layout.data, account)
    if closed is not None:
        raise EmbeddedPostgresError(
            f"the data folder {layout.data} cannot be used: PostgreSQL does not run as root, and "
            f"its user {account.name} cannot enter {closed}",
            hint,
        )


def closed_folder(path: Path, account: Account) -> Path | None:
    """The outermost folder on the way to `path` that `account` cannot enter, or None."""
    if account.is_invoker:
        return None
    existing = nearest_existing(path)
    return account.first_closed([*reversed(existing.parents), existing])


def _system_folder(clone: Path) -> Path:
    """A folder of its own for each clone, recognisable by name and unique by path."""
    clone = clone.resolve()
    slug = re.sub(r"[^a-z0-9]+", "-", clone.name.lower()).strip("-") or "data"
    return SYSTEM_DATA / f"{slug}-{hashlib.sha256(os.fsencode(clone)).hexdigest()[:8]}"
