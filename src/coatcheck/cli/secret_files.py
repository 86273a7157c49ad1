"""Secrets that ``up`` stores in its data folder, in files readable only by their owner."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

KEY_PEPPER: Final = "key-pepper"
SECRET_KEYS: Final = "secret-keys"  # noqa: S105 - the name of a file
DEV_KEY: Final = "dev-key"
JWT_SECRET: Final = "jwt-secret"  # noqa: S105 - the name of a file
ADDRESS: Final = "address"
"""Not a secret: the address of this folder's server, for commands that look for it."""

_OWNER_ONLY: Final = 0o600


def read(path: Path) -> str | None:
    """The file's content without surrounding whitespace; None if the file does not exist."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def write(path: Path, secret: str) -> None:
    """Write the secret atomically; others can never read it."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def stored_pepper(folder: Path) -> str | None:
    """The pepper of the API keys that an ``up`` on this folder created."""
    return read(folder / KEY_PEPPER)


def stored_secret_keys(folder: Path) -> str | None:
    """The keys that seal service secrets in the database of this folder."""
    return read(folder / SECRET_KEYS)
