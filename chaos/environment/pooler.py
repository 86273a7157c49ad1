"""A real PgBouncer in front of a real PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from coatcheck.db.embedded.folder import server_account
from tests.conftest import make_open_folder
from tests.e2e.conftest import free_port
from tests.waiting import eventually

PoolMode = Literal["session", "transaction", "statement"]

_CONFIGURATION = """
[databases]
* = host={socket_dir} port={socket_port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
server_round_robin = {round_robin}
default_pool_size = {connections}
max_client_conn = 400
ignore_startup_parameters = {ignored}
"""


@contextmanager
def pgbouncer(
    dsn: str,
    mode: PoolMode,
    *,
    connections: int = 80,
    round_robin: bool = False,
    ignored: str = "",
) -> Iterator[str]:
    """The URL of ``dsn``'s database through a pooler in this mode.

    ``connections`` is the maximum number of its connections to PostgreSQL. With ``round_robin`` it
    uses the longest idle one, not the last used one. ``ignored`` are session settings that it
    accepts from clients and does not forward; it refuses others.
    """
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    url = urlsplit(dsn)
    query = parse_qs(url.query)
    port = free_port()
    folder = make_open_folder()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _CONFIGURATION.format(
            socket_dir=query["host"][0],
            socket_port=query["port"][0],
            user=url.username,
            port=port,
            mode=mode,
            round_robin=int(round_robin),
            connections=connections,
            ignored=ignored,
        )
    )
    settings.chmod(0o644)
    # It refuses to be root; the account that PostgreSQL runs as may enter the socket's folder.
    process = subprocess.Popen(
        [program, str(settings)],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "pgbouncer.log").open("wb"),
        **server_account().identity(),
    )
    try:
        eventually(lambda: _listens(process, folder), "the pooler listens")
        yield f"postgresql://{url.username}@127.0.0.1:{port}{url.path}?sslmode=disable"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _listens(process: subprocess.Popen[bytes], folder: Path) -> bool:
    said = (folder / "pgbouncer.log").read_text()
    assert process.poll() is None, said
    return "process up" in said
