"""The SQL and the commands of the guide to operating PostgreSQL, run as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.blobs.stores import blob_store_of
from tests.conftest import SESSION_DIR_VARIABLE
from tests.databases import Databases, run
from tests.e2e.conftest import environment
from tests.markdown import REPOSITORY, Page
from tests.waiting import LIMIT_SECONDS

PAGE = Page(REPOSITORY / "docs/how-to/operate-postgresql.md")
DOCUMENTED_DATABASE = "postgresql://coatcheck:choose-one@db.example:5432/coatcheck"
DOCUMENTED_BLOBS = "s3://my-bucket/coatcheck"


def statements(block: str, name: str) -> Iterator[str]:
    """Its statements, of a role and a database of another name: the server has many."""
    named = re.sub(r"\bcoatcheck\b(?! %)", name, block)
    yield from (each for each in named.split(";") if re.search(r"^\s*[A-Z]", each, re.MULTILINE))


@pytest.mark.slow
async def test_a_database_is_prepared_and_looked_at_as_the_guide_says(
    databases: Databases, tmp_path: Path
) -> None:
    name = f"guide_{secrets.token_hex(8)}"
    prepare, role, *looks = (block.text for block in PAGE.blocks("sql"))
    (commands,) = (block.text for block in PAGE.blocks("sh"))
    server = databases.maintenance_dsn
    try:
        for statement in statements(prepare, name):
            await run(server, statement)
        for statement in statements(role, name):
            with suppress(asyncpg.DuplicateObjectError):  # the role is the whole server's
                await run(server, statement)
        dsn = as_user(databases.dsn_of(name), f"{name}:choose-one")
        said = await asyncio.to_thread(set_up, commands, dsn, tmp_path)
        assert "The schema is up to date." in said

        connection = await asyncpg.connect(dsn, server_settings={"application_name": "coatcheck x"})
        shown = [
            await connection.fetch(statement)
            for look in looks
            for statement in statements(look, name)
        ]
        await connection.close()
        held, *_, tables, opened = shown
        assert "coatcheck x" in {row["application_name"] for row in held}
        assert "jobs" in {row["relname"] for row in tables}
        assert opened, "the look itself is a transaction"
    finally:
        await run(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await run(server, f"DROP ROLE IF EXISTS {name}")


def set_up(commands: str, dsn: str, folder: Path) -> str:
    assert DOCUMENTED_DATABASE in commands
    assert DOCUMENTED_BLOBS in commands
    store = blob_store_of("s3", Path(os.environ[SESSION_DIR_VARIABLE]), folder)
    script = commands.replace(DOCUMENTED_DATABASE, f"'{dsn}'").replace(DOCUMENTED_BLOBS, store.url)
    beside = Path(sys.executable).parent
    path = {"PATH": f"{beside}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=environment(**path, **store.environment),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def as_user(dsn: str, user: str) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))
