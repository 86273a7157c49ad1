"""`coatcheck orgs` and `coatcheck keys`, run as an operator runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.tenants import Principal, RateLimit, Scope
from coatcheck.http.auth import Authenticator
from coatcheck.settings import Settings
from tests.e2e.conftest import coatcheck, free_port

PEPPER = "the pepper of these tests, 32 or more"

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(dsn: str, tmp_path: Path) -> Command:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        known = {"COATCHECK_DATABASE_URL": dsn, "COATCHECK_KEY_PEPPER": PEPPER}
        return coatcheck(*arguments, cwd=tmp_path, **(known | variables))

    return run


def answer(ran: subprocess.CompletedProcess[str]) -> Any:
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


async def caller(dsn: str, key: str) -> Principal | None:
    line = Connection(dsn, name="test")
    settings = Settings(database_url=dsn, key_pepper=PEPPER)
    try:
        return await Authenticator(settings, line, trusted=lambda: False).check(key.encode())
    except Unauthenticated:
        return None
    finally:
        await line.close()


async def test_an_organisation_and_its_keys_from_first_to_last(command: Command, dsn: str) -> None:
    created = answer(
        command("orgs", "create", "acme", "--name", "Acme", "--rate", "100/60", "--json")
    )
    assert created["rate_limit"] == {"requests": 100, "seconds": 60}
    assert (created["name"], created["subscription"]) == ("Acme", "active")

    made = answer(
        command(
            *("keys", "create", "--org", "acme", "--user", "ada", "--name", "importer"),
            *("--scope", "read", "--scope", "admin", "--expires", "30d", "--rate", "10/1"),
            "--json",
        )
    )
    born, ends = (datetime.fromisoformat(made[name]) for name in ("created_at", "expires_at"))
    assert ends - born == timedelta(days=30)
    principal = await caller(dsn, made["key"])
    assert principal is not None
    assert (principal.org, principal.user, principal.key_id) == ("acme", "ada", made["id"])
    assert principal.scopes == {Scope.READ, Scope.ADMIN}
    assert (principal.key_rate, principal.org_rate) == (RateLimit(10, 1), RateLimit(100, 60))

    plain = command("keys", "create", "--org", "acme").stdout.strip()
    assert await caller(dsn, plain) is not None
    lines = command("keys", "list", "--org", "acme", "--json").stdout.splitlines()
    listed = [json.loads(line) for line in lines]
    assert {key["id"] for key in listed} == {made["id"], plain.split("_")[1]}
    table = command("keys", "list", "--org", "acme").stdout
    assert made["id"] in table
    for key in (made["key"], plain):
        assert key.split("_")[2] not in table + json.dumps(listed)

    assert command("keys", "revoke", made["id"], "--org", "acme").returncode == 0
    assert await caller(dsn, made["key"]) is None
    assert command("keys", "revoke", made["id"], "--org", "acme").returncode == 0
    assert command("keys", "revoke", plain, "--org", "acme").returncode == 0
    assert await caller(dsn, plain) is None


async def test_the_list_of_keys_has_a_line_for_each_in_a_pipe(command: Command) -> None:
    answer(command("orgs", "create", "acme", "--json"))
    made = answer(
        command(
            *("keys", "create", "--org", "acme", "--name", "a name of quite some length"),
            *("--expires", "30d", "--rate", "1000/60", "--scope", "submit", "--json"),
        )
    )
    _, row = command("keys", "list", "--org", "acme", COLUMNS="80").stdout.splitlines()
    assert "a name of quite some length" in row
    for shown in (made["id"], "1000/60", made["created_at"][:10], made["expires_at"][:10]):
        assert shown in row
    assert command("keys", "revoke", made["id"], "--org", "acme").returncode == 0
    assert "revoked" in command("keys", "list", "--org", "acme", COLUMNS="80").stdout


async def test_limits_are_set_and_taken_away(command: Command) -> None:
    answer(command("orgs", "create", "acme", "--json"))
    limits = ("--rate", "5/1", "--backlog", "100", "--timeout-max", "7200")
    set_to = answer(command("orgs", "limit", "acme", *limits, "--json"))
    assert set_to["rate_limit"] == {"requests": 5, "seconds": 1}
    assert (set_to["backlog_max"], set_to["timeout_max"]) == (100, 7200)
    assert answer(command("orgs", "list", "--json")) == set_to
    assert "5/1" in command("orgs", "list").stdout
    taken = answer(command("orgs", "limit", "acme", "--json"))
    assert [taken[name] for name in ("rate_limit", "backlog_max", "timeout_max")] == [None] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("orgs", "create", "a/b"), 2, "is not a valid organisation ID"),
        (("orgs", "create", "*"), 2, "is not a valid organisation ID"),
        (("orgs", "limit", "nobody"), 1, "organisation 'nobody' not found"),
        (("keys", "create", "--org", "nobody"), 1, "coatcheck orgs create nobody"),
        (("keys", "create", "--user", "a b"), 2, "is not a valid user ID"),
        (("keys", "create", "--name", "x" * 101), 2, "at most 100 characters"),
        (("keys", "create", "--scope", "root"), 2, "root"),
        (("keys", "create", "--expires", "soon"), 2, "30d"),
        (("keys", "create", "--expires", "0d"), 2, "30d"),
        (("keys", "create", "--rate", "10"), 2, "100/60"),
        (("keys", "create", "--rate", "0/1"), 2, "100/60"),
        (("keys", "revoke", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), 1, "key not found"),
    ],
)
def test_what_cannot_be_done_is_said(
    dsn: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """In this process: a dozen of them would spend most of their time on starting Python."""
    known = {"COATCHECK_DATABASE_URL": dsn, "COATCHECK_KEY_PEPPER": PEPPER, "COLUMNS": "200"}
    ran = CliRunner().invoke(app, arguments, env=known)
    assert ran.exit_code == code
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_organisation_is_not_created_twice(command: Command) -> None:
    assert command("orgs", "create", "acme").returncode == 0
    again = command("orgs", "create", "acme")
    assert again.returncode == 2
    assert "organisation 'acme' already exists" in again.stderr


def test_without_a_pepper_no_key_is_made(command: Command) -> None:
    assert command("orgs", "create", "default").returncode == 0
    ran = command("keys", "create", COATCHECK_KEY_PEPPER="")
    assert ran.returncode == 2
    assert "COATCHECK_KEY_PEPPER is not set; allowed: at least 32 characters" in ran.stderr
    assert command("keys", "list", COATCHECK_KEY_PEPPER="").returncode == 0


def test_a_server_without_a_pepper_does_not_start(command: Command) -> None:
    for pepper, said in (("", "is not set"), ("too short", "which is not allowed")):
        ran = command("serve", "--port", str(free_port()), COATCHECK_KEY_PEPPER=pepper)
        assert ran.returncode == 2
        assert "COATCHECK_KEY_PEPPER is" in ran.stderr
        assert said in ran.stderr
        assert "too short" not in ran.stderr
