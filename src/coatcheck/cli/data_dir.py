"""The data folder of a command, and the database that ``up`` runs in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from coatcheck.cli.environment import overridden
from coatcheck.cli.own_tokens import stored_issuer
from coatcheck.cli.secret_files import stored_pepper, stored_secret_keys
from coatcheck.db.embedded import EmbeddedPostgres, pick_data_dir
from coatcheck.settings import Settings

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder of `coatcheck up`.", metavar="DIR"),
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
