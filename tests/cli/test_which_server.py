"""Which server a command talks to, which key it presents, and who said so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.cli.command_errors import Misconfigured
from coatcheck.cli.keys import ServedKeys, register_at
from coatcheck.cli.server_address import (
    NothingStarted,
    ServerConfig,
    ServerOptions,
    find,
    look,
    read_configuration,
)
from coatcheck.cli.stored_keys import StoredKeys

PROFILES = """
default = "work"

[profiles.work]
url = "https://work.example.org"
api_key = "cck_work_secret"
org = "acme"

[profiles.other]
url = "https://other.example.org"
api_key_file = "other-key"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run commands in, with nothing in its environment but a configuration file."""
    for name in [name for name in os.environ if name.startswith("COATCHECK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COATCHECK_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setattr("coatcheck.cli.data_dir.pick_data_dir", _pick)
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, "")
    return tmp_path


def _pick(requested: Path | None, cwd: Path) -> tuple[Path, str]:
    """As for users: root has other folders, where PostgreSQL can enter."""
    return (requested or cwd / ".coatcheck"), "a test"


def configure(folder: Path, text: str) -> None:
    (folder / "config.toml").write_text(text)
    (folder / "config.toml").chmod(0o600)
    (folder / "other-key").write_text("cck_other_secret\n")
    (folder / "binary").write_bytes(b"\xff\xfe")


def started_up(folder: Path, url: str, key: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "address").write_text(f"{url}\n")
    (folder / "dev-key").write_text(f"{key}\n")


def seen(**options: str | Path) -> ServerConfig:
    return look(ServerOptions(**options), read_configuration())  # type: ignore[arg-type]


def test_an_option_goes_before_the_environment_and_that_before_a_profile(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(here, PROFILES)
    found = seen()
    assert (found.url, found.token, found.org) == (
        "https://work.example.org",
        "cck_work_secret",
        "acme",
    )
    monkeypatch.setenv("COATCHECK_URL", "https://set.example.org")
    monkeypatch.setenv("COATCHECK_API_KEY", "cck_set_secret")
    monkeypatch.setenv("COATCHECK_ORG", "set")
    found = seen()
    assert (found.url, found.url_from) == ("https://set.example.org", "COATCHECK_URL")
    assert (found.token, found.org) == ("cck_set_secret", "set")
    found = seen(url="https://said.example.org", api_key="cck_said_secret", org="said")
    assert (found.url, found.token, found.org) == (
        "https://said.example.org",
        "cck_said_secret",
        "said",
    )


def test_a_profile_that_is_named_goes_before_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(here, PROFILES)
    monkeypatch.setenv("COATCHECK_URL", "https://set.example.org")
    monkeypatch.setenv("COATCHECK_API_KEY", "cck_set_secret")
    found = seen(profile="other")
    assert (found.url, found.token) == ("https://other.example.org", "cck_other_secret")
    assert (found.org, found.org_from) == (None, "the key")
    monkeypatch.delenv("COATCHECK_URL")
    monkeypatch.delenv("COATCHECK_API_KEY")
    monkeypatch.setenv("COATCHECK_PROFILE", "other")
    assert seen().url == "https://other.example.org"


def test_a_key_is_not_shown_to_a_server_that_it_is_not_for(here: Path) -> None:
    configure(here, PROFILES)
    started_up(here / ".coatcheck", "http://127.0.0.1:9999", "cck_dev_secret")
    assert seen(url="https://elsewhere.example.org").token is None
    assert seen(url="http://127.0.0.1.example.org").token is None
    assert seen(url="http://127.0.0.1:9999").token == "cck_dev_secret"
    with pytest.raises(Misconfigured, match=r"^no API key\n"):
        find(ServerOptions(url="https://elsewhere.example.org"))


def test_an_address_that_is_none_is_said_before_a_missing_key(here: Path) -> None:
    for url in ("localhost:8080", "nonsense", "http://ada:secret@127.0.0.1"):
        with pytest.raises(Misconfigured, match="invalid server address: it must") as raised:
            find(ServerOptions(url=url))
        assert "set by --url" in str(raised.value)
        assert "secret" not in str(raised.value)


def test_commands_in_the_folder_of_an_up_find_it(here: Path) -> None:
    assert seen().url == "http://127.0.0.1:8080"
    started_up(here / ".coatcheck", "http://127.0.0.1:9999", "cck_dev_secret")
    found = find(ServerOptions())
    assert (found.url, found.token) == ("http://127.0.0.1:9999", "cck_dev_secret")
    started_up(here / "other", "http://127.0.0.1:7777", "cck_theirs_secret")
    found = find(ServerOptions(data=here / "other"))
    assert (found.url, found.token) == ("http://127.0.0.1:7777", "cck_theirs_secret")
    assert found.command("jobs").endswith(f" jobs --data {here / 'other'}")
    with pytest.raises(NothingStarted, match="coatcheck up --data"):
        find(ServerOptions(data=here / "empty"))


def test_a_folder_that_is_named_goes_before_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COATCHECK_URL", "https://set.example.org")
    monkeypatch.setenv("COATCHECK_API_KEY", "cck_set_secret")
    started_up(here / "other", "http://127.0.0.1:7777", "cck_theirs_secret")
    found = seen(data=here / "other")
    assert (found.url, found.token) == ("http://127.0.0.1:7777", "cck_theirs_secret")


def test_the_key_of_a_folder_is_not_for_the_server_that_the_environment_names(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_up(here / "other", "http://192.0.2.7:8080", "cck_theirs_secret")
    assert seen(data=here / "other").token == "cck_theirs_secret"
    (here / "other" / "address").unlink()
    monkeypatch.setenv("COATCHECK_URL", "https://set.example.org")
    found = seen(data=here / "other")
    assert (found.url, found.token) == ("https://set.example.org", None)
    monkeypatch.setenv("COATCHECK_URL", "http://127.0.0.1:7777")
    assert seen(data=here / "other").token == "cck_theirs_secret"


def test_keys_are_asked_for_at_a_server_unless_there_is_no_key_to_present(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misconfigured, match=r"^no API key\n"):
        register_at(ServerOptions())
    (here / ".coatcheck").mkdir()
    assert isinstance(register_at(ServerOptions()), StoredKeys), "of `up`, which has lost its key"
    with pytest.raises(Misconfigured, match=r"^no API key\n"):
        register_at(ServerOptions(url="https://elsewhere.example.org"))
    monkeypatch.setenv("COATCHECK_URL", "https://set.example.org")
    with pytest.raises(Misconfigured, match=r"^no API key\n"):
        register_at(ServerOptions())
    monkeypatch.delenv("COATCHECK_URL")
    started_up(here / ".coatcheck", "http://127.0.0.1:9999", "cck_dev_secret")
    assert isinstance(register_at(ServerOptions()), ServedKeys)
    monkeypatch.setenv("COATCHECK_DATABASE_URL", "postgresql://db.example.org/coatcheck")
    stored = register_at(ServerOptions(org="acme"))
    assert (type(stored), stored.org) == (StoredKeys, "acme")
    assert isinstance(register_at(ServerOptions(data=here / ".coatcheck")), ServedKeys)
    monkeypatch.setenv("COATCHECK_API_KEY", "cck_set_secret")
    assert isinstance(register_at(ServerOptions(org="acme")), ServedKeys)


def test_a_command_to_be_copied_has_the_options_and_never_the_key(here: Path) -> None:
    found = seen(url="http://127.0.0.1:1", api_key="cck_said_secret", org="a b")
    copied = found.command("watch JOB")
    assert copied.endswith(" watch JOB --url http://127.0.0.1:1 --org 'a b'")
    assert "secret" not in copied + repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = ", "is not valid TOML"),
        ("servers = 1", "unknown field 'servers'"),
        ('[profiles.a]\nulr = "x"', "unknown field 'ulr'"),
        ("[profiles.a]\nurl = 1", "takes strings"),
        ('[profiles.a]\napi_key = "a"\napi_key_file = "b"', "remove one"),
        ('default = "nobody"\n[profiles.a]\nurl = "x"', "profile 'nobody' not found"),
        ('default = "a"\n[profiles.a]\napi_key_file = "absent"', "cannot read the key"),
        ('default = "a"\n[profiles.a]\napi_key_file = "binary"', "is not text"),
    ],
)
def test_a_file_that_cannot_be_meant_is_said_with_its_path(
    here: Path, text: str, said: str
) -> None:
    configure(here, text)
    ran = CliRunner().invoke(app, ["jobs"])
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_config_show_says_where_everything_is_from_without_secrets(here: Path) -> None:
    configure(here, PROFILES)
    ran = CliRunner().invoke(app, ["config", "show"])
    assert ran.exit_code == 0, ran.output
    assert "https://work.example.org  (the profile work)" in ran.stdout
    assert "cck_work_..." in ran.stdout
    assert "secret" not in ran.output
    ran = CliRunner().invoke(app, ["config", "show", "--json", "--profile", "other"])
    shown = json.loads(ran.stdout)
    assert (shown["url"], shown["org"]) == ("https://other.example.org", None)
    assert (shown["key_from"], shown["org_from"]) == ("the profile other", "the key")
    assert shown["profiles"] == ["work", "other"]
    assert "secret" not in ran.output


def test_config_show_says_that_no_key_is_set(here: Path) -> None:
    ran = CliRunner().invoke(app, ["config", "show"])
    assert "key:           not set\n" in ran.stdout
    assert "organisation:  that of the key\n" in ran.stdout


def test_a_file_with_a_key_that_others_may_read_is_warned_of(here: Path) -> None:
    configure(here, PROFILES)
    (here / "config.toml").chmod(0o644)
    ran = CliRunner().invoke(app, ["config", "show"])
    assert "chmod 600" in ran.stderr
