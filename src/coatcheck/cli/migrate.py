"""``coatcheck migrate``: upgrades the database to this version's schema."""

from __future__ import annotations

import asyncio

import typer

from coatcheck.cli.console import out, say
from coatcheck.cli.environment import prepare
from coatcheck.cli.errors import reporting_errors
from coatcheck.cli.options import JsonOption
from coatcheck.db.migrate import migrate as migrate_database
from coatcheck.encoding import encode
from coatcheck.settings import Settings


@reporting_errors
def migrate(as_json: JsonOption = False) -> None:
    """Upgrade the database to this version's schema.

    The database is the one in COATCHECK_DATABASE_URL. Safe to run repeatedly and
    concurrently. If a step fails, nothing changes.
    """
    settings = Settings.from_environment()
    prepare(settings)
    applied = asyncio.run(migrate_database(settings.database_url))
    if as_json:
        typer.echo(encode({"applied": applied}))
        return
    for name in applied:
        say(f"applied {name}")
    out.print("The schema is up to date." if applied else "The schema was already up to date.")
