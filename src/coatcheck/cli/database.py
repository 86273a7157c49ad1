"""Commands that change or show what is in the database, and need nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.settings import Settings
from coatcheck.store.line import Line
from coatcheck.store.migrate import check_schema
from coatcheck.store.sessions import require_sessions
from coatcheck.telemetry.logs import configure_logging

Result = TypeVar("Result")


def on_database(settings: Settings, work: Callable[[Line], Awaitable[Result]]) -> Result:
    """Give ``work`` a connection to the database, once its schema is known to be ours."""
    configure_logging("warning", settings.log_format)

    async def connected() -> Result:
        line = Line(settings.database_url, name="command")
        try:
            await require_sessions(line)
            await line.run(check_schema)
            return await work(line)
        finally:
            await line.close()

    try:
        return asyncio.run(connected())
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(
            f"{error}\nIs `coatcheck up` running? If it has a folder of its own, name it with "
            "--data; else set COATCHECK_DATABASE_URL."
        ) from error
