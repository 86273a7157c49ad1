"""Migrates a database to this version's schema: once, however many processes try at a time.

A schema comes in packages: the core's, and one for each product that has tables. A package is a
folder of numbered steps. The core's come first, because products add to its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, Self

import asyncpg

from coatcheck.db.connection import RawConnection
from coatcheck.db.errors import translated
from coatcheck.db.queries import expanded
from coatcheck.domain.errors import DatabaseBeforeFirstRelease, SchemaMismatch
from coatcheck.installed import product_folders

CORE: Final = "core"

_LOCK = 0x436F_6174_4D69  # "CoatMi"
_POSTGRES_VERSION_MIN = 180_000

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_steps (
    package    text COLLATE "C" NOT NULL,
    step       text COLLATE "C" NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (package, step)
)
"""
# The ledger of versions before 0.1.0 had this name.
_LEDGERS = """
SELECT to_regclass('schema_steps') IS NOT NULL AS has_ours,
       to_regclass('coatcheck_migrations') IS NOT NULL AS has_old
"""


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One file of a package's schema."""

    package: str
    name: str
    statements: str

    def __str__(self) -> str:
        return f"{self.package}/{self.name}"


@dataclass(frozen=True, slots=True)
class SchemaPackage:
    """The schema of the core or of a product: its steps, in order."""

    name: str
    steps: tuple[SchemaStep, ...]

    @classmethod
    def read(cls, name: str, folder: Traversable) -> Self:
        """The steps in a folder: its ``.sql`` files, by name."""
        files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
        return cls(
            name,
            tuple(
                SchemaStep(
                    name, file.name.removesuffix(".sql"), expanded(file.read_text("utf-8"), "")
                )
                for file in sorted(files, key=lambda file: file.name)
            ),
        )


@cache
def installed_packages() -> tuple[SchemaPackage, ...]:
    """Every installed package, whether its product is on or not: the core's first, then by name."""
    folders: dict[str, Traversable] = {CORE: resources.files("coatcheck.core")}
    folders |= product_folders()
    return tuple(
        SchemaPackage.read(name, schema)
        for name, folder in folders.items()
        if (schema := folder.joinpath("schema")).is_dir()
    )


async def migrate(dsn: str, packages: Sequence[SchemaPackage] | None = None) -> list[str]:
    """Apply the missing steps in one transaction. Returns their names.

    Uses the installed packages, unless ``packages`` gives others, with the core's first. Raises
    DatabaseBeforeFirstRelease for a database of a development version, and changes nothing in it.
    """
    async with translated(in_flight=False):
        # One transaction and no named statements: it also works through a transaction pooler.
        connection = await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
    try:
        async with translated(), connection.transaction():
            if int(await connection.fetchval("SHOW server_version_num")) < _POSTGRES_VERSION_MIN:
                raise SchemaMismatch("PostgreSQL 18 or later is needed")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await _has_ledger(connection)
            await connection.execute(_LEDGER)
            missing = await _missing(connection, packages)
            for step in missing:
                await connection.execute(step.statements)
                await connection.execute(
                    "INSERT INTO schema_steps (package, step) VALUES ($1, $2)",
                    step.package,
                    step.name,
                )
            return [*map(str, missing)]
    finally:
        await connection.close()


async def check_schema(
    connection: RawConnection, packages: Sequence[SchemaPackage] | None = None
) -> str:
    """The name of the core's newest step, if the database is exactly at this version's schema."""
    if not await _has_ledger(connection):
        raise SchemaMismatch("the database has no Coatcheck schema; run `coatcheck migrate`")
    missing = await _missing(connection, packages)
    if missing:
        steps = "step" if len(missing) == 1 else "steps"
        raise SchemaMismatch(
            f"the database lacks {len(missing)} schema {steps}, from {missing[0]}; "
            "run `coatcheck migrate`"
        )
    (core,) = [each for each in packages or installed_packages() if each.name == CORE]
    return core.steps[-1].name


async def _has_ledger(connection: RawConnection) -> bool:
    """Whether this database was ever migrated. Raises DatabaseBeforeFirstRelease."""
    (found,) = await connection.fetch(_LEDGERS)
    if found["has_old"]:
        raise DatabaseBeforeFirstRelease
    return bool(found["has_ours"])


async def _missing(
    connection: RawConnection, packages: Sequence[SchemaPackage] | None
) -> list[SchemaStep]:
    """The missing steps, in order.

    Raises SchemaMismatch if the database has a step of these packages that is unknown here. Steps
    of packages that are not installed are ignored: their tables do no harm.
    """
    known = packages or installed_packages()
    rows = await connection.fetch("SELECT package, step FROM schema_steps")
    applied = {(row["package"], row["step"]) for row in rows}
    steps = {(step.package, step.name): step for package in known for step in package.steps}
    names = {package.name for package in known}
    unknown = {each for each in applied - steps.keys() if each[0] in names}
    if unknown:
        raise SchemaMismatch(
            f"the database has schema step {'/'.join(max(unknown))}, which this version does not "
            "know; upgrade Coatcheck here"
        )
    return [step for key, step in steps.items() if key not in applied]
