"""The token issuer that ``up`` sets up, so that you can try things as a user."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from coatcheck.cli import secret_files

ISSUER: Final = "coatcheck-up"
_SECRET_BYTES: Final = 32
_SECRET: Final = "COATCHECK_JWT_SECRET"  # noqa: S105 - the name of a setting
_NAMES: Final = (_SECRET, "COATCHECK_JWT_ISSUER", "COATCHECK_JWT_AUDIENCE")


def keep_secret(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The issuer's settings, with a secret stored in the folder and created if missing. Empty if
    the environment configures an issuer."""
    if _configures_issuer(environment):
        return {}
    path = folder / secret_files.JWT_SECRET
    secret = secret_files.read(path)
    if not secret:
        secret = secrets.token_hex(_SECRET_BYTES)
        secret_files.write(path, secret)
    return _settings(secret)


def stored_issuer(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The same for commands that use a running deployment: empty if the folder has no secret."""
    secret = secret_files.read(folder / secret_files.JWT_SECRET)
    return {} if not secret or _configures_issuer(environment) else _settings(secret)


def _configures_issuer(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").strip() for name in _NAMES)


def _settings(secret: str) -> dict[str, str]:
    return dict(zip(_NAMES, (secret, ISSUER, ISSUER), strict=True))
