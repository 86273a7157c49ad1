from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import httpx2
import pytest

from tests.databases import Databases, run
from tests.e2e.conftest import COMMAND, coatcheck, environment, free_port
from tests.waiting import LIMIT_SECONDS, eventually


@pytest.fixture
async def empty_dsn(databases: Databases) -> AsyncIterator[str]:
    """A database that was never migrated."""
    name = f"empty_{secrets.token_hex(8)}"
    await run(databases.maintenance_dsn, f"CREATE DATABASE {name}")
    yield databases.dsn_of(name)
    await run(databases.maintenance_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running(
    *arguments: str, folder: Path, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A command in the background, and its log."""
    log = folder / "process.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment(COATCHECK_BLOB_URL=(folder / "blobs").as_uri(), **variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT_SECONDS)


def messages(log: Path) -> list[str]:
    """What a process says of itself, without a line for each request."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["message"] for line in lines if line["logger"] != "coatcheck.requests"]


def test_migrate_brings_a_database_up_to_date_once(empty_dsn: str, tmp_path: Path) -> None:
    first = coatcheck("migrate", cwd=tmp_path, COATCHECK_DATABASE_URL=empty_dsn)
    assert first.returncode == 0, first.stderr
    assert "applied core/0001_jobs" in first.stdout
    assert "The schema is up to date." in first.stdout
    second = coatcheck("migrate", cwd=tmp_path, COATCHECK_DATABASE_URL=empty_dsn)
    assert second.stdout == "The schema was already up to date.\n"


@pytest.mark.parametrize(
    "command",
    [["migrate"], ["serve"], ["worker", "coatcheck.cli.demo:demo"]],
    ids=lambda command: command[0],
)
async def test_a_database_of_a_development_version_must_be_made_anew(
    command: list[str], empty_dsn: str, tmp_path: Path
) -> None:
    await run(empty_dsn, "CREATE TABLE coatcheck_migrations (name text PRIMARY KEY)")
    refused = coatcheck(
        *command,
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=empty_dsn,
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
        COATCHECK_KEY_PEPPER="p" * 32,
        COATCHECK_PORT=str(free_port()),
    )
    assert refused.returncode == 1
    assert "made by a development version of Coatcheck before 0.1.0" in refused.stderr
    assert "Create an empty database" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_serve_answers_and_ends_well_at_sigterm(dsn: str, tmp_path: Path) -> None:
    port = free_port()
    with running(
        *("serve", "--port", str(port)),
        folder=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_KEY_PEPPER="p" * 32,
    ) as (process, log):

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            with suppress(httpx2.HTTPError):
                return httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).is_success
            return False

        eventually(ready, "it is ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0
        assert messages(log)[-2:] == ["received SIGTERM; stopping", "stopped"]


@pytest.mark.parametrize("services", [["coatcheck.cli.demo:demo"], []])
def test_a_worker_ends_well_at_sigterm_and_warns_of_a_misspelt_setting(
    dsn: str, tmp_path: Path, services: list[str]
) -> None:
    with running(
        "worker",
        *services,
        folder=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_TEMP_DIR=str(tmp_path / "temp"),
        COATCHECK_LANE_RETRYS="urgent=1",
    ) as (process, log):

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return "worker ready" in log.read_text()

        eventually(ready, "it claims")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0, log.read_text()
        assert (
            "COATCHECK_LANE_RETRYS is not a setting and is ignored; did you mean "
            "COATCHECK_LANE_RETRIES?"
        ) in messages(log)
        said = "no service given; running only what comes with Coatcheck" in messages(log)
        assert said == (not services)


def test_a_worker_is_registered_for_anything_else_only_once_its_services_can_be_called(
    dsn: str, tmp_path: Path
) -> None:
    """`coatcheck up` takes any worker's registration for the sign that all is ready."""
    with running(
        "worker",
        "coatcheck.cli.demo:demo",
        folder=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_TEMP_DIR=str(tmp_path / "temp"),
        COATCHECK_LOG_FORMAT="json",
    ) as (process, log):

        def all_ready() -> list[list[str]] | None:
            assert process.poll() is None, log.read_text()
            whole = log.read_text().rpartition("\n")[0].splitlines()
            lines = [json.loads(line) for line in whole if line.startswith("{")]
            told = [line["endpoints"] for line in lines if line["message"] == "worker ready"]
            return told if len(told) == 4 else None

        services, *others = eventually(all_ready, "every worker of the process is ready")
        assert "demo.post__echo" in services
        assert {name for other in others for name in other} >= {
            "gateway.post__http",
            "graphs.post__call",
            "batches.post__ingest",
        }


@pytest.mark.parametrize("command", ["serve", "worker", "migrate"])
def test_without_a_database_each_command_says_so_in_a_line_and_a_hint(
    command: str, tmp_path: Path
) -> None:
    arguments = [command, *(["coatcheck.cli.demo:demo"] if command == "worker" else [])]
    unset = coatcheck(*arguments, cwd=tmp_path)
    assert unset.returncode == 2
    assert unset.stderr.startswith("error: COATCHECK_DATABASE_URL is not set")
    variables = {
        "COATCHECK_DATABASE_URL": f"postgresql://me:hunter2@127.0.0.1:{free_port()}/x",
        "COATCHECK_BLOB_URL": (tmp_path / "blobs").as_uri(),
        "COATCHECK_TEMP_DIR": str(tmp_path / "temp"),
        "COATCHECK_PORT": str(free_port()),
        "COATCHECK_KEY_PEPPER": "p" * 32,
    }
    away = coatcheck(*arguments, cwd=tmp_path, **variables)
    assert away.returncode == 1
    assert "error: PostgreSQL cannot be reached" in away.stderr
    assert "coatcheck doctor" in away.stderr
    assert "Traceback" not in away.stderr
    assert "hunter2" not in away.stdout + away.stderr


def test_debug_shows_the_traceback_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://me:hunter2@127.0.0.1:{free_port()}/x"
    ran = coatcheck("--debug", "migrate", cwd=tmp_path, COATCHECK_DATABASE_URL=url)
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "DatabaseUnavailable" in ran.stderr
    assert "hunter2" not in ran.stderr


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_database_that_was_never_migrated_is_said_with_the_command_to_run(
    command: str, empty_dsn: str, tmp_path: Path
) -> None:
    arguments = [command, *(["coatcheck.cli.demo:demo"] if command == "worker" else [])]
    ran = coatcheck(
        *arguments,
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=empty_dsn,
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
        COATCHECK_TEMP_DIR=str(tmp_path / "temp"),
        COATCHECK_PORT=str(free_port()),
        COATCHECK_KEY_PEPPER="p" * 32,
    )
    assert ran.returncode == 1
    assert "coatcheck migrate" in ran.stderr
    assert "Traceback" not in ran.stderr


async def test_a_user_without_rights_is_told_what_postgresql_says(
    empty_dsn: str, databases: Databases, tmp_path: Path
) -> None:
    role = f"guest_{secrets.token_hex(4)}"
    await run(databases.maintenance_dsn, f"CREATE ROLE {role} LOGIN")
    try:
        guest = (
            empty_dsn.replace("://", f"://{role}@", 1)
            if "@" not in empty_dsn
            else ("postgresql://" + role + "@" + empty_dsn.partition("@")[2])
        )
        ran = coatcheck("migrate", cwd=tmp_path, COATCHECK_DATABASE_URL=guest)
    finally:
        connection = await asyncpg.connect(databases.maintenance_dsn)
        await connection.execute(f"DROP ROLE {role}")
        await connection.close()
    assert ran.returncode == 1
    assert "error: PostgreSQL does not let this user do that: permission denied" in ran.stderr
