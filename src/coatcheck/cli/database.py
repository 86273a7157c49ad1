"""Runs commands that need only the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coatcheck.db.connection import Connection
from coatcheck.db.migrate import check_schema
from coatcheck.db.sessions import require_sessions
from coatcheck.domain.errors import DatabaseUnavailable
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
