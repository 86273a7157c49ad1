"""A primary, a streaming standby, and one address for both."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg

from chaos.environment.waiting import until
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.embedded.cluster import CLEAN_ENVIRONMENT, runnable_bin, settings_file
from coatcheck.db.embedded.folder import server_account
from tests.waiting import eventually

_CHUNK_BYTES = 65_536
NAME = "standby"


class Standby:
    """A server that replicates another one until it is promoted."""

    def __init__(self, primary: EmbeddedPostgres, folder: Path) -> None:
        """Copies the running ``primary`` to ``folder``."""
        self._account = server_account(primary.data_dir / "pg")
        self._bin = runnable_bin(self._account)
        self._cluster = folder / "pg"
        self._log = folder / "postgresql.log"
        self._sockets = folder / "run"
        source = parse_qs(urlsplit(primary.dsn).query)
        self._source = f"host={source['host'][0]} port={source['port'][0]} user=coatcheck"
        for made in (folder, self._sockets, self._cluster):
            made.mkdir(mode=0o700, exist_ok=True)
            self._account.own(made)
        self._run(
            "pg_basebackup",
            f"--pgdata={self._cluster}",
            f"--dbname={self._source}",
            "--checkpoint=fast",
            "--write-recovery-conf",
        )
        (folder / "postgresql.coatcheck.conf").write_text(
            settings_file(
                {
                    "unix_socket_directories": str(self._sockets),
                    "port": 5432,
                    "cluster_name": NAME,
                    "primary_conninfo": f"{self._source} application_name={NAME}",
                    "hot_standby": True,
                }
            )
        )
        (folder / "postgresql.coatcheck.conf").chmod(0o644)
        # pg_basebackup wrote the same primary there, but no application name.
        (self._cluster / "postgresql.auto.conf").write_text("")

    @property
    def dsn(self) -> str:
        return f"postgresql://coatcheck@/coatcheck?host={self._sockets}&port=5432"

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._cluster],
                cwd="/",
                env=CLEAN_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                **self._account.identity(),
            )
        eventually(self._answers, "the standby answers")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        asked = [str(self._bin / "pg_isready"), "-q", "-h", str(self._sockets), "-p", "5432"]
        return subprocess.run(asked, check=False, **self._account.identity()).returncode == 0

    async def promote(self) -> None:
        """Promote it; returns when it accepts writes."""
        connection = await asyncpg.connect(self.dsn)
        try:
            assert await connection.fetchval("SELECT pg_promote(true, 60)")
        finally:
            await connection.close()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.send_signal(3)  # SIGQUIT: does not wait for connected clients
            self._process.wait()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            check=True,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            **self._account.identity(),
        )


async def follow_in_step(primary: EmbeddedPostgres) -> None:
    """Make replication synchronous: a commit waits for the standby's disk."""
    connection = await asyncpg.connect(primary.dsn)
    try:
        await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
        await connection.execute("SELECT pg_reload_conf()")

        async def look() -> bool:
            return bool(
                await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                )
            )

        await until(look, "the standby is in step")
    finally:
        await connection.close()


class Address:
    """A TCP address that can be switched between servers, like a virtual IP or a proxy."""

    def __init__(self) -> None:
        self._target = ""
        self._clients: set[asyncio.StreamWriter] = set()
        self.dsn = ""

    def lead_to(self, dsn: str) -> None:
        """Switch to this server; connections to another one are cut."""
        query = parse_qs(urlsplit(dsn).query)
        self._target = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        for client in self._clients:
            client.close()

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Address]:
        address = cls()
        address.lead_to(dsn)
        server = await asyncio.start_server(address._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address.dsn = f"postgresql://coatcheck@127.0.0.1:{port}/coatcheck?sslmode=disable"
        try:
            yield address
        finally:
            server.close()
            for client in address._clients:
                client.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            with suppress(OSError):
                from_server, to_server = await asyncio.open_unix_connection(self._target)
                await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, writer))
        finally:
            self._clients.discard(writer)
            writer.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await source.read(_CHUNK_BYTES):
            target.write(piece)
            await target.drain()
    target.close()
