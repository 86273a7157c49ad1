"""The keys that seal secrets, handled as the guide to production says, by its own commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from coatcheck import Settings
from coatcheck.cli.data_dir import stored_secret_keys
from coatcheck.cli.up import keep_secret_keys
from coatcheck.domain.service_definition import UPSTREAM
from coatcheck.sealing import KEY_CHARACTERS_MIN
from tests.e2e.conftest import coatcheck
from tests.markdown import REPOSITORY, Page
from tests.sealed_secrets import store_secrets

PAGE = Page(REPOSITORY / "docs/how-to/run-in-production.md")
MAKE_KEY, RESEAL = (block.text.strip() for block in PAGE.blocks("sh"))
(SAID,) = (block.text for block in PAGE.blocks("text"))
OLD, NEW = "o" * 32, "n" * 32
ADDRESS = (UPSTREAM, "https://upstream.example")

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(dsn: str, tmp_path: Path) -> Command:
    def run(text: str, *keys: str) -> subprocess.CompletedProcess[str]:
        _, *arguments = text.split()
        return coatcheck(
            *arguments,
            cwd=tmp_path,
            COATCHECK_DATABASE_URL=dsn,
            COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
            COATCHECK_SECRET_KEYS=",".join(keys),
        )

    return run


async def seal(dsn: str, key: str, org: str = "default") -> None:
    settings = Settings(database_url=dsn, blob_url="file:///none", secret_keys=(key,))
    await store_secrets(settings, ADDRESS, {"X-Key": "hush"}, org=org)


def verdict(ran: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """What the doctor says of the keys."""
    findings: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    (finding,) = [each for each in findings if each["subject"] == "secret keys"]
    return finding["verdict"], finding["found"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_key_that_is_made_as_the_guide_says_is_one() -> None:
    made = subprocess.run(MAKE_KEY.split(), capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"[0-9a-f]{64}", made.strip())
    assert len(made.strip()) >= KEY_CHARACTERS_MIN


async def test_a_key_is_changed_as_the_guide_says(dsn: str, command: Command) -> None:
    await seal(dsn, OLD)
    assert verdict(command("coatcheck doctor --json", OLD, NEW))[0] == "ok"
    assert verdict(command("coatcheck doctor --json", NEW, OLD)) == (
        "warn",
        "1 of 1 secrets are encrypted with an older key",
    )
    ran = command(RESEAL, NEW, OLD)
    assert (ran.returncode, ran.stdout) == (0, SAID), ran.stderr
    assert verdict(command("coatcheck doctor --json", NEW)) == (
        "ok",
        "the first key decrypts all 1 secrets",
    )
    again = command(f"{RESEAL} --json", NEW)
    assert json.loads(again.stdout) == {
        "resealed": 0,
        "current": 1,
        "old": 0,
        "locked": {},
        "plain": 0,
    }


async def test_what_a_missing_key_has_sealed_is_said_and_left_alone(
    dsn: str, command: Command
) -> None:
    await seal(dsn, OLD)
    await seal(dsn, NEW, org="acme")
    ran = command(RESEAL, NEW)
    assert ran.returncode == 1
    assert "which is not set: 1." in ran.stdout
    examined = command("coatcheck doctor --json", NEW)
    assert examined.returncode == 1
    kind, found = verdict(examined)
    assert (kind, "missing keys" in found) == ("fail", True)
    assert command(RESEAL, NEW, OLD).returncode == 0


async def test_a_secret_that_is_not_what_was_sealed_is_said(dsn: str, command: Command) -> None:
    await seal(dsn, OLD)
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE service_secrets SET sealed = sealed || 'AA'")
    await connection.close()
    ran = command(RESEAL, NEW, OLD)
    assert (ran.returncode, "Register their services again." in ran.stdout) == (1, True)


def test_without_a_key_there_is_nothing_to_seal_with(command: Command) -> None:
    ran = command(RESEAL)
    assert (ran.returncode, "COATCHECK_SECRET_KEYS is not set" in ran.stderr) == (2, True)
    assert verdict(command("coatcheck doctor --json")) == (
        "ok",
        "not set, and no service has secrets",
    )


def test_up_keeps_its_keys_and_puts_one_that_is_given_first(tmp_path: Path) -> None:
    made = keep_secret_keys(tmp_path, ())
    assert len(made) >= KEY_CHARACTERS_MIN
    assert (tmp_path / "secret-keys").stat().st_mode & 0o777 == 0o600
    assert keep_secret_keys(tmp_path, ()) == made
    assert keep_secret_keys(tmp_path, (NEW,)) == f"{NEW} {made}"
    assert keep_secret_keys(tmp_path, ()) == f"{NEW} {made}"
    assert stored_secret_keys(tmp_path) == f"{NEW}\n{made}"
