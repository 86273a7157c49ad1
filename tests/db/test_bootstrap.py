"""What ``coatcheck up`` creates before it serves, however often and wherever it was cut."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.cli.command_errors import Misconfigured
from coatcheck.cli.up import DevKey, bootstrap, keep_pepper
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.tenants import ALL_SCOPES
from coatcheck.http.auth import Authenticator
from coatcheck.settings import Settings
from tests.db.edge_guard import AsyncpgConnection

PEPPER = "p" * 32


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test")
    yield opened
    await opened.close()


async def start(dsn: str, folder: Path, *, preset: str = "", pepper: str = PEPPER) -> DevKey:
    return await bootstrap(dsn, folder, pepper=pepper, preset=preset)


async def accepted(line: Connection, key: str, pepper: str = PEPPER) -> bool:
    settings = Settings(database_url="unused", key_pepper=pepper)
    try:
        principal = await Authenticator(settings, line, trusted=lambda: False).check(key.encode())
    except Unauthenticated:
        return False
    assert (principal.org, principal.user, principal.scopes) == ("default", "dev", ALL_SCOPES)
    return True


async def test_the_first_start_makes_an_organisation_a_workspace_a_user_and_a_key(
    dsn: str, tmp_path: Path, line: Connection, connection: AsyncpgConnection
) -> None:
    key = await start(dsn, tmp_path)
    assert key.is_new
    assert await accepted(line, key.text)
    assert [tuple(row) for row in await connection.fetch("SELECT org_id, name FROM orgs")] == [
        ("default", "Default")
    ]
    workspaces = await connection.fetch("SELECT org_id, workspace_id FROM workspaces")
    assert [tuple(row) for row in workspaces] == [("default", "default")]
    users = await connection.fetch("SELECT org_id, user_id FROM users")
    assert [tuple(row) for row in users] == [("default", "dev")]


async def test_the_key_is_in_a_file_that_only_its_owner_can_read(dsn: str, tmp_path: Path) -> None:
    previous = os.umask(0)  # the widest there is
    try:
        key = await start(dsn, tmp_path)
        keep_pepper(tmp_path, "")
    finally:
        os.umask(previous)
    assert key.path == tmp_path / "dev-key"
    assert key.path.read_text() == f"{key.text}\n"
    for name in ("dev-key", "key-pepper"):
        status = (tmp_path / name).stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_uid == os.geteuid()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev-key", "key-pepper"]


async def test_later_starts_find_the_same_key(dsn: str, tmp_path: Path, line: Connection) -> None:
    first = await start(dsn, tmp_path)
    again = await start(dsn, tmp_path)
    assert (again.text, again.is_new, again.is_revoked) == (first.text, False, False)
    assert len(await tenants.list_keys(line, "default", after=None, limit=10)) == 1


async def test_a_start_that_died_before_the_key_was_stored_is_made_good(
    dsn: str, tmp_path: Path, line: Connection
) -> None:
    key = api_keys.mint()
    (tmp_path / "dev-key").write_text(f"{key.text}\n")
    assert (await start(dsn, tmp_path)).text == key.text
    assert await accepted(line, key.text)


async def test_a_preset_key_is_taken_and_replaces_the_one_before(
    dsn: str, tmp_path: Path, line: Connection
) -> None:
    first = await start(dsn, tmp_path)
    preset = api_keys.mint().text
    second = await start(dsn, tmp_path, preset=preset)
    assert (second.text, second.is_new) == (preset, True)
    assert (tmp_path / "dev-key").read_text().strip() == preset
    assert await accepted(line, preset)
    assert not await accepted(line, first.text)
    assert not (await start(dsn, tmp_path, preset=preset)).is_new


async def test_a_preset_key_with_the_same_id_and_another_secret_replaces_it_too(
    dsn: str, tmp_path: Path, line: Connection
) -> None:
    first = await start(dsn, tmp_path)
    preset = first.text[:31] + api_keys.mint().secret.decode()
    await start(dsn, tmp_path, preset=preset)
    assert await accepted(line, preset)
    assert not await accepted(line, first.text)


async def test_a_key_that_was_revoked_stays_so(dsn: str, tmp_path: Path, line: Connection) -> None:
    first = await start(dsn, tmp_path)
    await tenants.revoke(line, "default", first.text.split("_")[1])
    again = await start(dsn, tmp_path)
    assert (again.is_new, again.is_revoked) == (False, True)
    assert not await accepted(line, first.text)
    again.path.unlink()
    third = await start(dsn, tmp_path)
    assert third.text != first.text
    assert await accepted(line, third.text)


async def test_a_file_that_holds_no_key_is_said(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "dev-key").write_text("hello\n")
    with pytest.raises(Misconfigured, match="does not contain an API key\nDelete the file"):
        await start(dsn, tmp_path)


def test_the_pepper_is_made_once_and_kept(tmp_path: Path) -> None:
    made, is_another = keep_pepper(tmp_path, "")
    assert not is_another
    assert len(made) >= api_keys.PEPPER_CHARACTERS_MIN
    assert keep_pepper(tmp_path, "") == (made, False)


async def test_a_given_pepper_wins_and_the_dev_key_goes_with_it(
    dsn: str, tmp_path: Path, line: Connection
) -> None:
    made, _ = keep_pepper(tmp_path, "")
    key = await start(dsn, tmp_path, pepper=made)
    given, is_another = keep_pepper(tmp_path, "g" * 32)
    assert (given, is_another) == ("g" * 32, True)
    assert keep_pepper(tmp_path, "") == (given, False)
    await start(dsn, tmp_path, pepper=given)
    assert await accepted(line, key.text, pepper=given)
