"""The data folder of a command, and the database that ``up`` runs in it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from coatcheck.cli.environment import overridden
from coatcheck.db.embedded import EmbeddedPostgres, pick_data_dir
from coatcheck.settings import Settings

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


ISSUER: Final = "coatcheck-up"
_SECRET_BYTES: Final = 32
_SECRET: Final = "COATCHECK_JWT_SECRET"  # noqa: S105 - the name of a setting
_NAMES: Final = (_SECRET, "COATCHECK_JWT_ISSUER", "COATCHECK_JWT_AUDIENCE")


def keep_secret(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The issuer's settings, with a secret stored in the folder and created if missing. Empty if
    the environment configures an issuer."""
    if _configures_issuer(environment):
        return {}
    path = folder / JWT_SECRET
    secret = read(path)
    if not secret:
        secret = secrets.token_hex(_SECRET_BYTES)
        write(path, secret)
    return _settings(secret)


def stored_issuer(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The same for commands that use a running deployment: empty if the folder has no secret."""
    secret = read(folder / JWT_SECRET)
    return {} if not secret or _configures_issuer(environment) else _settings(secret)


def _configures_issuer(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").strip() for name in _NAMES)


def _settings(secret: str) -> dict[str, str]:
    return dict(zip(_NAMES, (secret, ISSUER, ISSUER), strict=True))


DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data folder of `coatcheck up`.", metavar="DIR")
]


def choose(requested: Path | None) -> tuple[Path, str]:
    """The data folder to use, and why."""
    return pick_data_dir(requested, Path.cwd())


def settings_for(requested: Path | None) -> Settings:
    """The settings of a command that connects to a running deployment.

    In this order: --data, COATCHECK_DATABASE_URL, the default folder.
    """
    if requested is None and os.environ.get("COATCHECK_DATABASE_URL"):
        return Settings.from_environment()
    folder, _ = choose(requested)
    return Settings.from_environment(
        overridden(
            {
                "COATCHECK_DATABASE_URL": EmbeddedPostgres(folder).dsn,
                "COATCHECK_BLOB_URL": blob_url(folder),
                "COATCHECK_KEY_PEPPER": stored_pepper(folder),
                "COATCHECK_SECRET_KEYS": stored_secret_keys(folder),
                **stored_issuer(folder, os.environ),
            }
        )
    )


def blob_url(folder: Path) -> str:
    """The configured container, or one in the data folder."""
    return os.environ.get("COATCHECK_BLOB_URL", "").strip() or (folder / "blobs").as_uri()
