"""Running PostgreSQL's own programs: a clean environment, the right account, and clear failures."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from coatcheck.db.embedded.account import Account
from coatcheck.db.embedded.errors import EmbeddedPostgresError

# Nothing of the caller's: PGOPTIONS, PGDATA or a locale in it would change what the programs do.
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's programs as `account` runs them."""

    bin_dir: Path
    account: Account

    def initdb(self, folder: Path, *, superuser: str) -> None:
        """Make a cluster in an empty folder that the account owns."""
        self._run(
            "initdb",
            f"--pgdata={folder}",
            f"--username={superuser}",
            "--auth-local=trust",  # the socket's folder is private, see layout.py
            "--auth-host=reject",
            "--encoding=UTF8",
            # The same order and case rules on every machine, whatever its C library.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--data-checksums",
            "--no-instructions",
        )

    def psql(self, socket_dir: Path, port: int, superuser: str, script: str) -> None:
        """Run a script in the maintenance database of a running server."""
        self._run(
            "psql",
            f"--host={socket_dir}",
            f"--port={port}",
            f"--username={superuser}",
            "--dbname=postgres",
            "--no-psqlrc",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            script=script,
        )

    def serve(
        self, cluster: Path, log: Path, extra_environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a server on a cluster, its output appended to `log`.

        It gets a session of its own: a Ctrl-C in the terminal is ours to act on, and must not end
        the server before the work that uses it. It is not tied to our life either: should we be
        killed, it goes on, and the next start adopts it.
        """
        with log.open("ab") as output:
            return subprocess.Popen(
                [self.bin_dir / "postgres", "-D", cluster],
                cwd="/",
                env=CLEAN_ENVIRONMENT | extra_environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **self.account.identity(),
            )

    def _run(self, program: str, *arguments: str, script: str = "") -> None:
        ran = subprocess.run(
            [self.bin_dir / program, *arguments],
            check=False,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            input=script,
            capture_output=True,
            text=True,
            **self.account.identity(),
        )
        if ran.returncode != 0:
            said = (ran.stderr or ran.stdout).strip()
            raise EmbeddedPostgresError(f"PostgreSQL's {program} failed: {said}")
