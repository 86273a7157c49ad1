"""``coatcheck migrate``: bring the database to this version's schema."""

from __future__ import annotations

import asyncio

import typer

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import out, say
from coatcheck.cli.environment import prepare
from coatcheck.cli.errors import reporting_errors
from coatcheck.encoding import encode
from coatcheck.settings import Settings
from coatcheck.store.migrate import migrate as migrate_database


@reporting_errors
def migrate(as_json: JsonOption = False) -> None:
    """Bring the database named by COATCHECK_DATABASE_URL to this version's schema.

    Safe to run again, and by several at once. Nothing changes if a step fails.
    """
    settings = Settings.from_environment()
    prepare(settings)
    applied = asyncio.run(migrate_database(settings.database_url))
    if as_json:
        typer.echo(encode({"applied": applied}))
        return
    for name in applied:
        say(f"applied {name}")
    out.print("The schema is up to date." if applied else "The schema was up to date.")
