"""`coatcheck receipt`, run as a customer and as an operator run it: no server, no database."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import coatcheck
from tests.unit.receipt_samples import PEPPER, signed

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return coatcheck("receipt", *arguments, cwd=tmp_path, **variables)

    return run


@pytest.fixture
def key(command: Command, tmp_path: Path) -> str:
    """The public key's file, made as an operator would make it."""
    printed = command(
        "key", COATCHECK_KEY_PEPPER=PEPPER, COATCHECK_DATABASE_URL="postgresql://nowhere/none"
    )
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "key.pem").write_text(printed.stdout)
    return "key.pem"


def test_a_receipt_is_verified_offline_and_shown(
    command: Command, key: str, tmp_path: Path
) -> None:
    (tmp_path / "receipt.json").write_bytes(signed())
    ran = command("verify", "receipt.json", "--key", key, COLUMNS="60")
    assert ran.returncode == 0, ran.stderr
    assert "all copies were deleted" in ran.stdout
    for shown in ("blob store", "host-1", "end_of_job", "2026-05-04T12:00:09.120Z", "01JX0RECE1PT"):
        assert shown in ran.stdout


def test_the_key_can_be_had_as_a_jwk(command: Command, tmp_path: Path) -> None:
    printed = command(
        "key",
        "--jwk",
        COATCHECK_KEY_PEPPER=PEPPER,
        COATCHECK_DATABASE_URL="postgresql://nowhere/none",
    )
    assert json.loads(printed.stdout)["crv"] == "Ed25519"
    (tmp_path / "key.json").write_text(printed.stdout)
    (tmp_path / "receipt.json").write_bytes(signed())
    assert command("verify", "receipt.json", "--key", "key.json").returncode == 0


def test_a_tampered_receipt_is_refused_and_not_shown(
    command: Command, key: str, tmp_path: Path
) -> None:
    tampered = signed(complete=False).replace(b'"complete":false', b'"complete":true')
    (tmp_path / "receipt.json").write_bytes(tampered)
    ran = command("verify", "receipt.json", "--key", key)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "is not genuine: its content differs from what was signed" in ran.stderr


def test_a_receipt_of_another_key_is_refused(command: Command, key: str, tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_bytes(signed(pepper="another pepper, of another deployment"))
    ran = command("verify", "receipt.json", "--key", key)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "a different key" in ran.stderr


def test_a_genuine_receipt_that_is_not_complete_has_an_exit_code_of_its_own(
    command: Command, key: str, tmp_path: Path
) -> None:
    (tmp_path / "receipt.json").write_bytes(signed(complete=False))
    ran = command("verify", "receipt.json", "--key", key)
    assert ran.returncode == 3
    assert "NOT DELETED" in ran.stdout
    assert "genuine but incomplete" in ran.stderr


def test_what_is_no_key_is_said_to_be_none(command: Command, tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_bytes(signed())
    (tmp_path / "key.pem").write_text("hello")
    ran = command("verify", "receipt.json", "--key", "key.pem")
    assert ran.returncode == 2
    assert "is not a usable public key" in ran.stderr
    absent = command("verify", "absent.json", "--key", "key.pem")
    assert absent.returncode != 0
    assert "Traceback" not in absent.stderr


def test_without_a_pepper_there_is_no_key_to_print(command: Command) -> None:
    ran = command("key", COATCHECK_DATABASE_URL="postgresql://nowhere/none")
    assert ran.returncode == 2
    assert "COATCHECK_KEY_PEPPER is not set" in ran.stderr
