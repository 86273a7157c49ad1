from __future__ import annotations

import dataclasses
import ipaddress
from ipaddress import IPv4Network
from pathlib import Path

import msgspec
import pytest

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane, LanePolicy
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.settings import SETTINGS, Settings, check_environment, likely_typos
from coatcheck.settings.egress_allow import AllowRule
from coatcheck.settings.parsers import GRAPH_OPERATIONS, TokenIssuer
from coatcheck.settings.targets import LlmTarget, ScrapeGateway

REPOSITORY = Path(__file__).resolve().parents[2]
DATABASE = {"COATCHECK_DATABASE_URL": "postgresql://me:hunter2@db.example/coatcheck"}


DEV_KEY = "cck_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "a" * 32
REMOTE = {"kind": "remote", "adapter": "modal", "app": "a", "function": "f"}
OWN = TokenIssuer(issuer="https://issuer.example", audience="coatcheck", secret="s" * 32)
PARTNER = TokenIssuer(
    issuer="https://partner.example",
    audience="coatcheck",
    jwks_url="https://partner.example/keys",
    algorithms=("RS256", "ES256"),
    kind="service",
    org_claim="tenant",
)
ISSUERS = msgspec.json.encode([PARTNER]).decode()
SPEAKER = OperatorRemote(
    target={
        "kind": "remote",
        "adapter": "http",
        "url": "http://gpu.local:8900",
        "secret": "token",
    },
    secrets={"token": "rt-x"},
)


def read(**variables: str) -> Settings:
    named = {f"COATCHECK_{name}": value for name, value in variables.items()}
    return Settings.from_environment(DATABASE | named)


def refusal(**variables: str) -> str:
    with pytest.raises(SettingsInvalid) as refused:
        read(**variables)
    return str(refused.value)


def test_only_the_database_url_is_required() -> None:
    settings = Settings.from_environment(DATABASE)
    assert settings.database_url == DATABASE["COATCHECK_DATABASE_URL"]
    assert settings.lanes == DEFAULT_POLICIES
    assert settings.keep_completed_seconds == 24 * 3600
    assert settings.keep_failed_seconds == 7 * 24 * 3600
    assert settings.batch_keep_seconds == 14 * 24 * 3600
    assert settings.batch_url_seconds == 24 * 3600
    assert (settings.poll_seconds_min, settings.poll_seconds_max) == (1.0, 30.0)
    assert settings.blob_url.startswith("file:///")
    with pytest.raises(SettingsInvalid, match="COATCHECK_DATABASE_URL is not set"):
        Settings.from_environment({})


def test_what_the_environment_says_is_what_the_fields_hold(tmp_path: Path) -> None:
    settings = read(
        BLOB_URL="s3://bucket/prefix",
        TEMP_DIR=str(tmp_path),
        PRODUCTS="gateway, llm,gateway",
        HOST="::1",
        PORT="9000",
        PROCESSES="4",
        CONNECTIONS="200",
        CONNECTIONS_PER_ADDRESS="20",
        PROXIES="10.0.0.0/8, ::1",
        HELD_ANSWERS_PER_KEY="30",
        HELD_ANSWERS_PER_ORG="0",
        KEEP_COMPLETED_SECONDS="0",
        KEEP_FAILED_SECONDS="60",
        POLL_SECONDS_MIN="0.25",
        POLL_SECONDS_MAX="5",
        BODY_MEMORY_MB="512",
        ANSWER_MEMORY_MB="1024",
        DRAIN_SECONDS="0",
        EGRESS_ALLOW="localhost:9000, 10.0.0.0/8",
        DNS_SERVERS="192.0.2.53, 192.0.2.54:5353, 2001:db8::53, [2001:db8::54]:5353",
        WEBHOOK_LOOPBACK="On",
        LOG_LEVEL="DEBUG",
        LOG_FORMAT="json",
        LOG_EVENTS="off",
        CORS_ORIGINS="https://app.example.com, http://localhost:3000",
        KEY_PEPPER="p" * 32,
        SECRET_KEYS=f"{'k' * 32}, {'o' * 32}",
        DEV_KEY=DEV_KEY,
        JWT_SECRET="s" * 32,
        JWT_ISSUER="https://issuer.example",
        JWT_AUDIENCE="coatcheck",
        JWT_ISSUERS=ISSUERS,
        OPERATOR_ORG="us",
        STRIPE_WEBHOOK_SECRET="whsec_x",
        STRIPE_API_KEY="rk_x",
        STRIPE_METERS="completed=jobs_completed, run_seconds=job_seconds",
        USAGE_REPORTS="daily",
        ARCHIVE_TTL_SECONDS="600",
        ARCHIVE_ENTRIES_MAX="1000",
        ARCHIVE_UNPACKED_MB_MAX="64",
        GRAPHS_CONCURRENCY="2",
        CALLS_CONCURRENCY="7",
        CALL_TIMEOUT_SECONDS_MAX="600",
        GRAPHS_MEMORY_MB="512",
        GRAPHS_RETRY_AFTER_SECONDS="call=3,domain=60",
        GRAPHS_LLM_URL="https://llm.example/v1",
        GRAPHS_LLM_MODEL="small",
        GRAPHS_LLM_KEY="sk-x",
        SCRAPE_GATEWAY="http://proxy:3128",
        SCRAPE_BYTES_MAX="1000",
        BATCH_SMALL_TASKS="10",
        BATCH_KEEP_SECONDS="3600",
        BATCH_URL_SECONDS="60",
        SERVICES_MAX="20",
        LLM_URL="http://gpu.local:11434/",
        LLM_TOKEN="tk-x",
        LLM_CONCURRENCY="2",
        PUBLIC_URL="https://jobs.example",
        REMOTES='{"gpu": {"target": {"adapter": "modal", "app": "a", "function": "f"}}}',
        LLM_TURN_SECONDS="0.5",
        LLM_KEEP_SECONDS="60",
        LLM_CANCEL_ABANDONED="on",
        SPEECH_REMOTE_URL="http://gpu.local:8900/",
        SPEECH_REMOTE_TOKEN="rt-x",
        SPEECH_TIMEOUT_SECONDS="90",
    )
    names = [field.name for field in dataclasses.fields(Settings)]
    assert {n: getattr(settings, n) for n in names if not n.startswith("lane")} == {
        "database_url": DATABASE["COATCHECK_DATABASE_URL"],
        "blob_url": "s3://bucket/prefix",
        "temp_dir": tmp_path,
        "products": ("gateway", "llm"),
        "host": "::1",
        "port": 9000,
        "processes": 4,
        "connections": 200,
        "connections_per_address": 20,
        "proxies": (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1")),
        "held_answers_per_key": 30,
        "held_answers_per_org": 0,
        "keep_completed_seconds": 0,
        "keep_failed_seconds": 60,
        "poll_seconds_min": 0.25,
        "poll_seconds_max": 5.0,
        "body_memory_mb": 512,
        "answer_memory_mb": 1024,
        "drain_seconds": 0.0,
        "egress_allow": (
            AllowRule("localhost", None, 9000),
            AllowRule(None, IPv4Network("10.0.0.0/8"), None),
        ),
        "dns_servers": (
            *("192.0.2.53:53", "192.0.2.54:5353"),
            *("[2001:db8::53]:53", "[2001:db8::54]:5353"),
        ),
        "webhook_loopback": True,
        "public_url": "https://jobs.example",
        "log_level": "debug",
        "log_format": "json",
        "log_events": False,
        "cors_origins": ("https://app.example.com", "http://localhost:3000"),
        "key_pepper": "p" * 32,
        "secret_keys": ("k" * 32, "o" * 32),
        "dev_key": DEV_KEY,
        "jwt_secret": "s" * 32,
        "jwt_issuer": "https://issuer.example",
        "jwt_audience": "coatcheck",
        "jwt_issuers": (PARTNER,),
        "operator_org": "us",
        "stripe_webhook_secret": "whsec_x",
        "stripe_api_key": "rk_x",
        "stripe_meters": {"completed": "jobs_completed", "run_seconds": "job_seconds"},
        "usage_reports": "daily",
        "archive_ttl_seconds": 600,
        "archive_entries_max": 1000,
        "archive_unpacked_mb_max": 64,
        "scrape_gateway": ScrapeGateway("proxy", "http://proxy:3128"),
        "scrape_bytes_max": 1000,
        "batch_small_tasks": 10,
        "batch_keep_seconds": 3600,
        "batch_url_seconds": 60,
        "services_max": 20,
        "graphs_concurrency": 2,
        "calls_concurrency": 7,
        "call_timeout_seconds_max": 600,
        "graphs_memory_mb": 512,
        "graphs_retry_after_seconds": {"call": 3, "domain": 60},
        "graphs_llm_url": "https://llm.example/v1",
        "graphs_llm_model": "small",
        "graphs_llm_key": "sk-x",
        "llm_url": "http://gpu.local:11434",
        "llm_token": "tk-x",
        "llm_concurrency": 2,
        "llm_targets": (LlmTarget("default", "http://gpu.local:11434", "tk-x", 2),),
        "llm_turn_seconds": 0.5,
        "llm_keep_seconds": 60,
        "llm_cancel_abandoned": True,
        "speech_remote_url": "http://gpu.local:8900",
        "speech_remote_token": "rt-x",
        "speech_remote": SPEAKER,
        "speech_timeout_seconds": 90.0,
        "remotes": {"gpu": OperatorRemote(target=REMOTE)},
        "token_issuers": (OWN, PARTNER),
    }


def test_lane_settings_become_one_policy_a_lane_and_keep_the_defaults_of_what_is_left_out() -> None:
    lanes = read(
        LANE_CONCURRENCY="urgent=1, bulk=0", LANE_RETRIES="standard=9", LANE_ACK_SECONDS="bulk=2.5"
    ).lanes
    assert lanes == {
        Lane.URGENT: LanePolicy(retries=5, ack_seconds=30.0, concurrency=1),
        Lane.STANDARD: LanePolicy(retries=9, ack_seconds=120.0, concurrency=32),
        Lane.BULK: LanePolicy(retries=3, ack_seconds=2.5, concurrency=0),
    }


def test_an_empty_variable_counts_as_unset() -> None:
    assert read(PORT="  ").port == 8080


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://db"),
        ("BLOB_URL", "file://relative"),
        ("BLOB_URL", "ftp://host/folder"),
        ("BLOB_URL", "/folder"),
        ("BLOB_URL", "s3://"),
        ("BLOB_URL", "s3:///prefix"),
        ("BLOB_URL", "az://?sig=secret"),
        ("BLOB_URL", "gs:bucket"),
        ("BLOB_URL", "s3://bucket/prefix?region=x"),
        ("TEMP_DIR", "relative"),
        ("PRODUCTS", "gateway,,llm"),
        ("HOST", "a b"),
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "80.5"),
        ("CONNECTIONS", "0"),
        ("CONNECTIONS_PER_ADDRESS", "-1"),
        ("PROXIES", "proxy.example"),
        ("PROXIES", "10.0.0.1/8"),
        ("HELD_ANSWERS_PER_KEY", "-1"),
        ("HELD_ANSWERS_PER_ORG", "many"),
        ("LANE_CONCURRENCY", "urgent"),
        ("LANE_CONCURRENCY", "urgent=-1"),
        ("LANE_CONCURRENCY", "fast=1"),
        ("LANE_CONCURRENCY", "bulk=1,bulk=2"),
        ("LANE_CONCURRENCY", "urgent=0,standard=0,bulk=0"),
        ("LANE_RESERVED_PERCENT", "urgent=91"),
        ("LANE_RETRIES", "urgent=101"),
        ("LANE_ACK_SECONDS", "urgent=0"),
        ("LANE_ACK_SECONDS", "urgent=nan"),
        ("KEEP_COMPLETED_SECONDS", "-1"),
        ("KEEP_FAILED_SECONDS", "1e3"),
        ("BATCH_KEEP_SECONDS", "-1"),
        ("BATCH_URL_SECONDS", "59"),
        ("BATCH_URL_SECONDS", "604801"),
        ("POLL_SECONDS_MIN", "inf"),
        ("POLL_SECONDS_MIN", "31"),
        ("POLL_SECONDS_MAX", "0.5"),
        ("BODY_MEMORY_MB", "127"),
        ("ANSWER_MEMORY_MB", "127"),
        ("DRAIN_SECONDS", "forever"),
        ("DNS_SERVERS", "dns.example.com"),
        ("DNS_SERVERS", "192.0.2.53:0"),
        ("DNS_SERVERS", "192.0.2.53:70000"),
        ("DNS_SERVERS", "[192.0.2.53]"),
        ("DNS_SERVERS", "[2001:db8::53"),
        ("DNS_SERVERS", "192.0.2"),
        ("EGRESS_ALLOW", "http://localhost"),
        ("EGRESS_ALLOW", "localhost:0"),
        ("WEBHOOK_LOOPBACK", "yes"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("LOG_EVENTS", "some"),
        ("CORS_ORIGINS", "https://app.example.com/"),
        ("CORS_ORIGINS", "app.example.com"),
        ("CORS_ORIGINS", "https://App.example.com"),
        ("CORS_ORIGINS", "*, https://app.example.com"),
        ("CORS_ORIGINS", "https://user@app.example.com"),
        ("CORS_ORIGINS", "null"),
        ("KEY_PEPPER", "p" * 31),
        ("SECRET_KEYS", "k" * 31),
        ("SECRET_KEYS", f"{'k' * 32},{'k' * 31}"),
        ("SECRET_KEYS", f"{'k' * 32} {'k' * 32}"),
        ("DEV_KEY", "secret"),
        ("JWT_SECRET", "s" * 31),
        ("JWT_ISSUER", "a b"),
        ("JWT_AUDIENCE", "a b"),
        ("JWT_ISSUERS", "issuer"),
        ("OPERATOR_ORG", "an org"),
        ("STRIPE_WEBHOOK_SECRET", "sk_live_x"),
        ("STRIPE_API_KEY", "pk_live_x"),
        ("STRIPE_API_KEY", "sk_"),
        ("STRIPE_METERS", "jobs"),
        ("STRIPE_METERS", "colour=jobs"),
        ("STRIPE_METERS", "jobs=a b"),
        ("STRIPE_METERS", "jobs=a,jobs=b"),
        ("STRIPE_METERS", "jobs=a,completed=a"),
        ("USAGE_REPORTS", "yearly"),
        ("ARCHIVE_TTL_SECONDS", "0"),
        ("ARCHIVE_TTL_SECONDS", "86401"),
        ("ARCHIVE_ENTRIES_MAX", "0"),
        ("ARCHIVE_UNPACKED_MB_MAX", "1048577"),
        ("GRAPHS_CONCURRENCY", "-1"),
        ("CALLS_CONCURRENCY", "0"),
        ("CALL_TIMEOUT_SECONDS_MAX", "86401"),
        ("GRAPHS_MEMORY_MB", "255"),
        ("GRAPHS_RETRY_AFTER_SECONDS", "0"),
        ("GRAPHS_RETRY_AFTER_SECONDS", "call=0"),
        ("GRAPHS_RETRY_AFTER_SECONDS", "draw=5"),
        ("GRAPHS_RETRY_AFTER_SECONDS", "call=5,call=6"),
        ("GRAPHS_LLM_URL", "llm.example/v1"),
        ("GRAPHS_LLM_URL", "file:///etc/passwd"),
        ("GRAPHS_LLM_URL", "https://me:hunter2@llm.example/v1"),
        ("GRAPHS_LLM_URL", "https://llm.example:99999/v1"),
        ("GRAPHS_LLM_URL", "https://[llm.example/v1"),
        ("GRAPHS_LLM_URL", "https://llm.example/v1?key=1"),
        ("GRAPHS_LLM_MODEL", "a b"),
        ("GRAPHS_LLM_KEY", "a b"),
        ("SCRAPE_GATEWAY", "https://proxy:3128"),
        ("SCRAPE_BYTES_MAX", "0"),
        ("SCRAPE_BYTES_MAX", "1073741825"),
        ("BATCH_SMALL_TASKS", "-1"),
        ("BATCH_SMALL_TASKS", "10001"),
        ("SERVICES_MAX", "-1"),
        ("SERVICES_MAX", "10001"),
        ("PROCESSES", "0"),
        ("PROCESSES", "65"),
        ("LLM_URL", "gpu.local:11434"),
        ("LLM_TOKEN", "a b"),
        ("LLM_TOKEN", "ä"),
        ("LLM_CONCURRENCY", "0"),
        ("LLM_CONCURRENCY", "1001"),
        ("LLM_TARGETS", "gpu.local"),
        ("PUBLIC_URL", "jobs.example"),
        ("REMOTES", '{"gpu": {"target": {}}}'),
        ("LLM_TURN_SECONDS", "-1"),
        ("LLM_KEEP_SECONDS", "-1"),
        ("LLM_CANCEL_ABANDONED", "perhaps"),
        ("SPEECH_REMOTE_URL", "gpu.local:8900"),
        ("SPEECH_REMOTE_TOKEN", "a b"),
        ("SPEECH_REMOTE", "gpu.local"),
        ("SPEECH_REMOTE", '{"target": {}}'),
        ("SPEECH_REMOTE", '{"target": {"adapter": "modal"}, "else": 1}'),
        ("SPEECH_TIMEOUT_SECONDS", "0"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    assert f"COATCHECK_{name}" in refusal(**{name: value})


def test_every_setting_has_a_value_that_is_refused_in_the_test_above() -> None:
    [mark] = [
        mark
        for mark in test_a_wrong_value_is_refused_by_name.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    ]
    refused = {f"COATCHECK_{name}" for name, _ in mark.args[1]}
    assert refused == {setting.variable for setting in SETTINGS.values()}


def test_all_problems_are_listed_at_once_with_what_was_given_and_what_is_allowed() -> None:
    message = refusal(PORT="http", LOG_LEVEL="loud", LANE_RETRIES="urgent")
    assert message.startswith("3 settings are wrong:")
    assert "COATCHECK_PORT is 'http', which is not allowed; allowed: a whole number" in message
    assert "COATCHECK_LOG_LEVEL is 'loud'" in message
    assert "COATCHECK_LANE_RETRIES is 'urgent'" in message


def test_a_password_shows_neither_in_an_error_nor_in_the_object() -> None:
    assert "hunter2" not in refusal(DATABASE_URL="mysql://me:hunter2@db/x")
    assert "hunter2" not in repr(read(BLOB_URL="s3://key:hunter2@bucket/x"))


def test_no_secret_shows_in_an_error_or_in_the_object() -> None:
    issuers = (
        '[{"issuer": "i", "audience": "a", "secret": "hunter2 and more, 32 characters of it"%s}]'
    )
    for name, value in (
        ("KEY_PEPPER", "hunter2"),
        ("SECRET_KEYS", "hunter2"),
        ("DEV_KEY", "hunter2"),
        ("JWT_SECRET", "hunter2"),
        ("JWT_ISSUERS", issuers % ', "kind": "hunter"'),
        ("STRIPE_WEBHOOK_SECRET", "hunter2"),
        ("STRIPE_API_KEY", "hunter2"),
        ("GRAPHS_LLM_KEY", "hunter2 hunter2"),
        ("SCRAPE_GATEWAY", "http://me:hunter2@proxy"),
        ("LLM_TOKEN", "hunter2 hunter2"),
        ("LLM_TARGETS", '[{"name": "a", "url": "http://a", "token": "hunter2 hunter2"}]'),
        ("LLM_TARGETS", '[{"name": "a", "url": "http://me:hunter2@a"}]'),
        ("SPEECH_REMOTE_TOKEN", "hunter2 hunter2"),
        ("SPEECH_REMOTE", '{"target": {"adapter": "fal"}, "secrets": {"a": "hunter2 hunter2"}}'),
    ):
        assert "hunter2" not in refusal(**{name: value})
    good = read(
        KEY_PEPPER="hunter2" * 5,
        SECRET_KEYS="hunter2" * 5,
        DEV_KEY=DEV_KEY + "hunter2",
        JWT_SECRET="hunter2" * 5,
        JWT_ISSUER="i",
        JWT_AUDIENCE="b",
        JWT_ISSUERS=issuers % "",
        STRIPE_WEBHOOK_SECRET="whsec_hunter2",
        STRIPE_API_KEY="sk_hunter2",
        STRIPE_METERS="jobs=jobs",
        GRAPHS_LLM_KEY="hunter2",
        SCRAPE_GATEWAY="http://me:hunter2@proxy:3128",
        LLM_TARGETS='[{"name": "a", "url": "http://a", "token": "hunter2"}]',
    )
    assert "hunter2" not in repr(good)
    assert "hunter2" not in repr(read(LLM_URL="http://a", LLM_TOKEN="hunter2"))
    assert "hunter2" not in repr(good.llm_targets)
    speaks = read(SPEECH_REMOTE_URL="http://a", SPEECH_REMOTE_TOKEN="hunter2")
    assert "hunter2" not in repr(speaks) + repr(speaks.speech_target)


@pytest.mark.parametrize(
    ("given", "value", "missing"),
    [("URL", "https://llm.example/v1", "MODEL"), ("MODEL", "small", "URL")],
)
def test_a_language_model_has_both_an_address_and_a_name(
    given: str, value: str, missing: str
) -> None:
    assert refusal(**{f"GRAPHS_LLM_{given}": value}) == (
        f"COATCHECK_GRAPHS_LLM_{missing} is not set, but COATCHECK_GRAPHS_LLM_{given} is"
    )


def test_a_language_model_whose_address_is_wrong_is_one_problem() -> None:
    message = refusal(GRAPHS_LLM_URL="llm.example", GRAPHS_LLM_MODEL="small")
    assert message.startswith("COATCHECK_GRAPHS_LLM_URL is 'llm.example', which is not allowed")


def test_retry_after_is_one_number_for_all_operations_or_one_for_each() -> None:
    same = read(GRAPHS_RETRY_AFTER_SECONDS="7").graphs_retry_after_seconds
    assert same == dict.fromkeys(GRAPH_OPERATIONS, 7)
    own = read(GRAPHS_RETRY_AFTER_SECONDS="call=7").graphs_retry_after_seconds
    assert own == {"call": 7}
    assert read().graphs_retry_after_seconds == {}


@pytest.mark.parametrize("given", ["JWT_SECRET", "JWT_ISSUER", "JWT_AUDIENCE"])
def test_an_issuers_three_settings_go_together(given: str) -> None:
    message = refusal(**{given: "x" * 32})
    assert message.startswith("2 settings are wrong:")
    for name in {"JWT_SECRET", "JWT_ISSUER", "JWT_AUDIENCE"} - {given}:
        assert f"COATCHECK_{name} is not set, but COATCHECK_{given} is" in message


@pytest.mark.parametrize(
    ("issuer", "why"),
    [
        ({}, "needs either a secret or a jwks_url"),
        ({"secret": "s" * 32, "jwks_url": "https://x"}, "needs either a secret or a jwks_url"),
        ({"secret": "short"}, "fewer than 32 characters"),
        ({"secret": "s" * 32, "algorithms": ["RS256"]}, "algorithms must be from HS256"),
        ({"secret": "s" * 32, "algorithms": ["none"]}, "algorithms must be from HS256"),
        ({"jwks_url": "https://x", "algorithms": ["HS256"]}, "with a jwks_url, algorithms must be"),
        ({"jwks_url": "https://x", "algorithms": ["RS256", "none"]}, "with a jwks_url"),
        ({"jwks_url": "http://issuer.example/keys"}, "is not https"),
        ({"jwks_url": "file:///etc/passwd"}, "is not https"),
        ({"jwks_url": "https://me@issuer.example/keys"}, "has no host, or contains a user"),
        ({"secret": "s" * 32, "kind": "robot"}, "kind"),
        ({"secret": "s" * 32, "issuer": ""}, "issuer is empty"),
        ({"secret": "s" * 32, "org_claim": ""}, "org_claim is empty"),
        ({"secret": "s" * 32, "algorithm": "HS256"}, "unknown field"),
    ],
)
def test_an_issuer_that_cannot_be_trusted_is_refused_with_the_reason(
    issuer: dict[str, object], why: str
) -> None:
    listed = [{"issuer": "i", "audience": "a"} | issuer]
    assert why in refusal(JWT_ISSUERS=msgspec.json.encode(listed).decode())


def test_no_two_issuers_may_claim_the_same_tokens() -> None:
    twice = [{"issuer": "i", "audience": "a", "secret": letter * 32} for letter in "xy"]
    assert "same issuer and audience" in refusal(JWT_ISSUERS=msgspec.json.encode(twice).decode())
    clash = refusal(
        JWT_SECRET="s" * 32,
        JWT_ISSUER="i",
        JWT_AUDIENCE="a",
        JWT_ISSUERS=msgspec.json.encode(twice[:1]).decode(),
    )
    assert "same issuer and audience" in clash


def test_an_issuer_on_this_machine_may_publish_its_keys_without_tls() -> None:
    local = [{"issuer": "i", "audience": "a", "jwks_url": "http://127.0.0.1:9/keys"}]
    [issuer] = read(JWT_ISSUERS=msgspec.json.encode(local).decode()).token_issuers
    assert issuer.algorithms == ("RS256", "ES256")


def test_several_targets_are_a_list_and_one_is_called_default() -> None:
    listed = '[{"name": "a", "url": "http://a/"}, {"name": "b", "url": "https://b/x", \
"token": "t", "concurrency": 4}]'
    assert read(LLM_TARGETS=listed).llm_targets == (
        LlmTarget("a", "http://a", "", 1),
        LlmTarget("b", "https://b/x", "t", 4),
    )
    assert read(LLM_URL="http://a").llm_targets == (LlmTarget("default", "http://a"),)
    assert read().llm_targets == read(LLM_TARGETS="[]").llm_targets == ()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"name": ""}, "the name of target 2"),
        ({"name": "a b"}, "the name of target 2"),
        ({"name": "a"}, "two of them have the same name"),
        ({"url": "b"}, "the url of target 2"),
        ({"url": "https://me:pw@b"}, "the url of target 2"),
        ({"token": "a b"}, "the token of target 2"),
        ({"concurrency": 0}, "the concurrency of target 2"),
        ({"concurrency": "2"}, "Expected `int`"),
        ({"tokn": "x"}, "unknown field"),
    ],
)
def test_a_target_that_cannot_be_called_is_refused_with_the_reason(
    target: dict[str, object], why: str
) -> None:
    listed = [{"name": "a", "url": "http://a"}, {"name": "b", "url": "http://b"} | target]
    assert why in refusal(LLM_TARGETS=msgspec.json.encode(listed).decode())


def test_one_target_or_a_list_of_them_is_set_and_not_both() -> None:
    both = refusal(LLM_URL="http://a", LLM_TARGETS="[]")
    assert both == "COATCHECK_LLM_TARGETS is set, and so is COATCHECK_LLM_URL; set one of them"
    for name, value in (("LLM_TOKEN", "t"), ("LLM_CONCURRENCY", "2")):
        assert refusal(**{name: value}).startswith(
            f"COATCHECK_{name} is set, but COATCHECK_LLM_URL is not"
        )


def test_what_only_some_commands_need_is_asked_for_by_name() -> None:
    with pytest.raises(SettingsInvalid, match="COATCHECK_KEY_PEPPER is not set; allowed: at least"):
        read().require("key_pepper")
    assert read(KEY_PEPPER="p" * 32).require("key_pepper") == "p" * 32


def test_a_command_that_learns_the_database_later_still_checks_the_rest() -> None:
    check_environment({}, except_for="COATCHECK_DATABASE_URL")
    with pytest.raises(SettingsInvalid, match=r"^COATCHECK_PORT"):
        check_environment({"COATCHECK_PORT": "x"}, except_for="COATCHECK_DATABASE_URL")


def test_a_misspelt_variable_is_matched_with_the_one_that_was_meant() -> None:
    assert likely_typos(
        {
            "COATCHECK_DATABSE_URL": "",
            "COATCHECK_LANES_CONCURRENCY": "",
            "COATCHECK_PORT": "",
            "COATCHECK_CRASH_AT": "",
            "COATCHECK_TEST_DSN": "",
            "COATCHECK_SOMETHING_OF_YOURS": "",
            "DATABASE_URL": "",
        }
    ) == {
        "COATCHECK_DATABSE_URL": "COATCHECK_DATABASE_URL",
        "COATCHECK_LANES_CONCURRENCY": "COATCHECK_LANE_CONCURRENCY",
    }


def test_what_speaks_is_a_url_or_any_other_kind_of_remote() -> None:
    assert read().speech_target is None
    plain = read(SPEECH_REMOTE_URL="http://a").speech_target
    assert plain == OperatorRemote(target={"kind": "remote", "adapter": "http", "url": "http://a"})
    modal = {"target": {"adapter": "modal", "app": "tts", "function": "speak"}}
    assert read(SPEECH_REMOTE=msgspec.json.encode(modal).decode()).speech_target == OperatorRemote(
        target={"kind": "remote", "adapter": "modal", "app": "tts", "function": "speak"}
    )


def test_what_speaks_is_named_once() -> None:
    both = refusal(SPEECH_REMOTE_URL="http://a", SPEECH_REMOTE='{"target": {"adapter": "fal"}}')
    assert both == (
        "COATCHECK_SPEECH_REMOTE is set, and so is COATCHECK_SPEECH_REMOTE_URL; set one of them"
    )
    assert "COATCHECK_SPEECH_REMOTE_URL is not" in refusal(SPEECH_REMOTE_TOKEN="x")


def test_no_proxy_at_all_can_be_said() -> None:
    assert read(PROXIES="none").proxies == ()


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"STRIPE_API_KEY": "sk_x"}, "STRIPE_METERS"),
        ({"STRIPE_METERS": "jobs=a"}, "STRIPE_API_KEY"),
    ],
)
def test_usage_is_sent_to_stripe_with_a_key_and_meters_or_not_at_all(
    given: dict[str, str], missing: str
) -> None:
    assert f"COATCHECK_{missing} is not set" in refusal(**given)
