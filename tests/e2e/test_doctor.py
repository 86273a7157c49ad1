from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from coatcheck.cli import doctor
from coatcheck.db.diagnosis import DatabaseRefused, Diagnosis
from coatcheck.product import Products, Verdict
from coatcheck.settings import Settings
from coatcheck.settings.targets import LlmTarget
from examples.ollama_upstream import OllamaUpstream
from examples.tts_remote import TtsRemote
from tests.blobs.stores import BlobStore
from tests.databases import Databases
from tests.e2e.conftest import coatcheck, free_port


def verdicts(output: str) -> dict[str, str]:
    """The table's first two columns."""
    rows = [line.split("│") for line in output.splitlines() if line.count("│") == 2]
    return {row[0].strip(): row[1].strip() for row in rows if row[0].strip()}


def test_a_healthy_installation_is_all_ok(dsn: str, tmp_path: Path) -> None:
    ran = coatcheck(
        "doctor",
        cwd=tmp_path,
        COATCHECK_KEY_PEPPER="p" * 32,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert verdicts(ran.stdout) == dict.fromkeys(
        [
            "versions",
            "settings",
            "database",
            "schema",
            "services",
            "secret keys",
            "LISTEN/NOTIFY",
            "advisory locks",
            "clock",
            "blob store",
        ],
        "ok",
    )


def test_several_processes_of_a_server_are_said_with_what_they_need(
    dsn: str, tmp_path: Path
) -> None:
    ran = coatcheck(
        *("doctor", "--json"),
        cwd=tmp_path,
        COATCHECK_KEY_PEPPER="p" * 32,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
        COATCHECK_PROCESSES="4",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (found,) = [line for line in ran.stdout.splitlines() if '"subject":"settings"' in line]
    assert "4 processes of `coatcheck serve`" in found
    assert "up to 48 connections to PostgreSQL" in found


def test_settings_with_which_serve_does_not_start_are_not_called_valid(
    dsn: str, tmp_path: Path
) -> None:
    environment = {
        "COATCHECK_DATABASE_URL": dsn,
        "COATCHECK_BLOB_URL": (tmp_path / "blobs").as_uri(),
    }
    serving = coatcheck("serve", cwd=tmp_path, **environment)
    assert serving.returncode == 2
    assert "COATCHECK_KEY_PEPPER is not set" in serving.stderr
    ran = coatcheck("doctor", "--json", cwd=tmp_path, **environment)
    (found,) = [line for line in ran.stdout.splitlines() if '"subject":"settings"' in line]
    assert '"verdict":"warn"' in found
    assert "COATCHECK_KEY_PEPPER is not set" in found
    assert ran.returncode == 0, "a worker needs no pepper"


def test_a_database_that_was_never_migrated_fails_with_the_command_to_run(
    databases: Databases, tmp_path: Path
) -> None:
    ran = coatcheck(
        "doctor",
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=databases.maintenance_dsn,
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
    )
    assert ran.returncode == 1
    assert verdicts(ran.stdout)["schema"] == "fail"
    assert verdicts(ran.stdout)["database"] == "ok"
    assert "coatcheck migrate" in ran.stdout


def test_an_unreachable_database_fails_without_showing_the_password(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")
    ran = coatcheck(
        "doctor",
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=f"postgresql://me:hunter2@127.0.0.1:{free_port()}/x",
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
    )
    assert ran.returncode == 1
    assert verdicts(ran.stdout)["database"] == "fail"
    assert verdicts(ran.stdout)["blob store"] == "fail"
    assert "COATCHECK_DATABASE_URL" in ran.stdout
    assert "COATCHECK_BLOB_URL" in ran.stdout
    assert "hunter2" not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)
def test_a_blob_store_on_a_server_works_or_fails_without_showing_its_address(
    blob_store: BlobStore, dsn: str, tmp_path: Path
) -> None:
    environment = {"COATCHECK_DATABASE_URL": dsn, "COATCHECK_BLOB_URL": blob_store.url}
    healthy = coatcheck("doctor", cwd=tmp_path, **environment, **blob_store.environment)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert verdicts(healthy.stdout)["blob store"] == "ok"
    nowhere = f"http://127.0.0.1:{free_port()}"
    away = {"AWS_ENDPOINT_URL": nowhere, "AZURITE_BLOB_STORAGE_URL": nowhere}
    failing = coatcheck("doctor", cwd=tmp_path, **environment, **blob_store.environment | away)
    assert failing.returncode == 1
    assert verdicts(failing.stdout)["blob store"] == "fail"
    assert "COATCHECK_BLOB_URL" in failing.stdout
    assert nowhere.removeprefix("http://") not in failing.stdout + failing.stderr


def test_wrong_settings_fail_and_a_misspelt_one_is_a_warning(dsn: str, tmp_path: Path) -> None:
    wrong = coatcheck("doctor", cwd=tmp_path, COATCHECK_DATABASE_URL=dsn, COATCHECK_PORT="http")
    assert wrong.returncode == 1
    assert verdicts(wrong.stdout)["settings"] == "fail"
    assert "COATCHECK_PORT is 'http'" in wrong.stdout
    misspelt = coatcheck(
        "doctor",
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
        COATCHECK_PROT="80",
    )
    assert misspelt.returncode == 0
    assert verdicts(misspelt.stdout)["settings"] == "warn"
    assert "Did you mean COATCHECK_PORT?" in misspelt.stdout


async def test_a_database_that_does_not_exist_is_refused_in_words(databases: Databases) -> None:
    with pytest.raises(DatabaseRefused, match='database "nowhere" does not exist'):
        async with Diagnosis.of(databases.dsn_of("nowhere")):
            pass


async def test_a_user_that_does_not_exist_is_refused_in_words(dsn: str) -> None:
    parts = urlsplit(dsn)
    stranger = urlunsplit(parts._replace(netloc=f"nobody@{parts.netloc.rpartition('@')[2]}"))
    with pytest.raises(DatabaseRefused, match="refuses this user or password"):
        async with Diagnosis.of(stranger):
            pass


async def test_a_server_that_takes_no_writes_fails_and_is_not_asked_for_what_it_refuses(
    dsn: str,
) -> None:
    """A standby: to LISTEN is an error there, and would hide the reason."""
    read_only = f"{dsn}&options=-c%20default_transaction_read_only%3Don"
    settings = Settings(database_url=read_only)
    found = {finding.subject: finding async for finding in doctor.check_database(settings)}
    assert list(found) == ["database", "schema", "services", "secret keys", "clock"]
    assert found["database"].verdict is Verdict.FAIL
    assert "read-only" in found["database"].found
    assert "primary" in found["database"].hint


async def test_a_clock_that_is_off_is_a_warning_that_says_it_is_harmless(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 600)
    async with Diagnosis.of(dsn) as diagnosis:
        finding = await doctor.check_clock(diagnosis)
    assert finding.verdict is Verdict.WARN
    assert "ahead" in finding.found
    assert "NTP" in finding.hint


@pytest.fixture
async def split_sessions(dsn: str, databases: Databases) -> AsyncIterator[Diagnosis]:
    """Two connections that do not meet: notifications and advisory locks end at a database.

    What a transaction pooler does to us now and then, this does every time.
    """
    first = await asyncpg.connect(dsn)
    second = await asyncpg.connect(databases.maintenance_dsn)
    yield Diagnosis(first, second)
    await second.close()
    await first.close()


async def test_notifications_that_do_not_arrive_fail(split_sessions: Diagnosis) -> None:
    finding = await doctor.check_notifications(split_sessions)
    assert finding.verdict is Verdict.FAIL
    assert "session mode" in finding.hint


async def test_advisory_locks_that_do_not_hold_fail(split_sessions: Diagnosis) -> None:
    finding = await doctor.check_advisory_locks(split_sessions)
    assert finding.verdict is Verdict.FAIL
    assert "session mode" in finding.hint


async def test_targets_of_the_llm_surface_are_asked_and_one_that_sleeps_is_a_warning() -> None:
    async with OllamaUpstream(token="right") as upstream:
        targets = (
            LlmTarget("a", upstream.url, "right"),
            LlmTarget("b", upstream.url, "wrong"),
        )
        settings = Settings(database_url="postgresql://nobody", llm_targets=targets)
        (llm,) = Products.load(("llm",))
        assert llm.checks is not None
        healthy, refused = await llm.checks(settings)
        await upstream.go_away()
        asleep, _ = await llm.checks(settings)
    assert (healthy.subject, healthy.verdict) == ("llm target a", Verdict.OK)
    assert (refused.verdict, refused.found) == (Verdict.WARN, f"{upstream.url} answers 401")
    assert (asleep.verdict, asleep.found) == (Verdict.WARN, f"{upstream.url} does not answer")


async def test_remotes_of_the_operator_are_asked_and_one_that_sleeps_is_a_warning(
    tmp_path: Path,
) -> None:
    async with TtsRemote(tmp_path) as remote:
        settings = Settings(database_url="postgresql://nobody", speech_remote_url=remote.url)
        (awake,) = await doctor.check_remotes(settings, Products.load(settings.products))
        await remote.go_away()
        (asleep,) = await doctor.check_remotes(settings, Products.load(settings.products))
    assert (awake.subject, awake.verdict) == ("remote speech", Verdict.OK)
    assert asleep.verdict is Verdict.WARN
