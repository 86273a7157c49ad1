"""Making a cluster: whole, or not there at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from coatcheck.db.embedded.binaries import MAJOR_VERSION
from coatcheck.db.embedded.errors import EmbeddedPostgresError
from coatcheck.db.embedded.layout import Layout
from coatcheck.db.embedded.programs import Programs

UNFINISHED_PREFIX = "pg.unfinished-"


def create_cluster(layout: Layout, programs: Programs, *, superuser: str) -> None:
    """Make the cluster beside its place and move it there once it is on disk.

    A first boot that is cut short leaves only an unfinished folder, which the next one removes.
    Each has its own name, as the initdb of a killed boot may still be writing to the last one.
    """
    for leftover in layout.data.glob(f"{UNFINISHED_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)  # what such an initdb adds goes the next time
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=layout.data))
    programs.account.own(unfinished)
    programs.initdb(unfinished, superuser=superuser)
    _include(layout.conf, unfinished / "postgresql.conf")
    unfinished.rename(layout.cluster)
    _sync_folder(layout.data)


def check_version(layout: Layout) -> None:
    """Raise EmbeddedPostgresError if another major version of PostgreSQL made the cluster."""
    found = (layout.cluster / "PG_VERSION").read_text().strip()
    if found != str(MAJOR_VERSION):
        raise EmbeddedPostgresError(
            f"{layout.cluster} was made by PostgreSQL {found}, and this is {MAJOR_VERSION}",
            "Move the data over with pg_dump and pg_restore, or name another folder with --data.",
        )


def _include(settings: Path, own_conf: Path) -> None:
    text = f"\ninclude = '../{settings.name}'\n# Your own settings go below.\n"
    # The folder is the server account's by now: root must not follow a link that it might plant.
    descriptor = os.open(own_conf, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
