"""Runs commands that need only the database; the first is ``coatcheck migrate``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from coatcheck.cli.command_errors import reporting_errors
from coatcheck.cli.console import out, say
from coatcheck.cli.environment import prepare
from coatcheck.cli.options import JsonOption
from coatcheck.db.connection import Connection
from coatcheck.db.diagnosis import require_sessions
from coatcheck.db.migrate import check_schema
from coatcheck.db.migrate import migrate as migrate_database
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.encoding import encode
from coatcheck.settings import Settings
from coatcheck.telemetry.logs import configure_logging

Result = TypeVar("Result")


def on_database(settings: Settings, work: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Run ``work`` with a database connection, after checking the schema version."""
    configure_logging("warning", settings.log_format)

    async def connected() -> Result:
        db = Connection(settings.database_url, name="command")
        try:
            await require_sessions(db)
            await db.run(check_schema)
            return await work(db)
        finally:
            await db.close()

    try:
        return asyncio.run(connected())
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(
            f"{error}\nIs `coatcheck up` running? Name its data folder with --data, or set "
            "COATCHECK_DATABASE_URL."
        ) from error


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
