"""All settings: one frozen object, read once from the environment.

Each field below declares its variable, default, bounds and meaning in one place. The reader, the
error messages and ``docs/reference/settings.md`` are generated from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, cast

import msgspec

from coatcheck.domain import tenants
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane, LanePolicy
from coatcheck.domain.limits import (
    ARCHIVE_ENTRIES_MAX,
    ARCHIVE_UNPACKED_MB_MAX,
    SIGNED_URL_SECONDS_MAX,
)
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.domain.tenants import ORG_ID_ALLOWED
from coatcheck.domain.usage import METERED
from coatcheck.sealing import KEY_CHARACTERS_MIN
from coatcheck.settings import parsers
from coatcheck.settings.egress_allow import AllowRule, parse_allow
from coatcheck.settings.parsers import (
    GRAPH_OPERATIONS,
    SECRET_CHARACTERS_MIN,
    SettingRefused,
    TokenIssuer,
    check_apart,
)
from coatcheck.settings.targets import (
    CONCURRENCY_MAX,
    ONLY_TARGET,
    LlmTarget,
    ScrapeGateway,
    bearer_token,
    over_http,
    parse_gateway,
    parse_remote,
    parse_targets,
)
from coatcheck.telemetry.logs import LogFormat

PREFIX: Final = "COATCHECK_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable: its name, allowed values and meaning."""

    variable: str
    meaning: str
    allowed: str
    parse: Callable[[str], Any]
    required: bool
    shown_default: str
    secret: bool


def setting(
    variable: str,
    meaning: str,
    *,
    allowed: str,
    parse: Callable[[str], Any],
    default: str | Callable[[], str] | None = None,
    shown_default: str | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field that carries its declaration. Without a default it is required."""
    required = default is None
    declaration = Setting(
        variable=PREFIX + variable,
        meaning=meaning,
        allowed=allowed,
        parse=parse,
        required=required,
        shown_default=shown_default or ("none: required" if required else f"`{default}`"),
        secret=secret,
    )
    metadata = {"setting": declaration}
    if default is None:
        return field(repr=not secret, metadata=metadata)

    def make_default() -> Any:
        return parse(default if isinstance(default, str) else default())

    return field(default_factory=make_default, repr=not secret, metadata=metadata)


def parse_remotes(text: str) -> Mapping[str, OperatorRemote]:
    """Parse the JSON object; empty text has none. Errors quote no secret."""
    remotes: dict[str, OperatorRemote] = {}
    try:
        written = _decode(text or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingRefused(str(error)) from None
    for name, each in written.items():
        if _NAME.fullmatch(name) is None:
            raise SettingRefused(
                f"{name[:80]!r} is not a valid remote name: use letters, digits, '-' and '_'"
            )
        try:
            remote = parse_remote(bytes(each).decode())
        except SettingRefused as error:
            raise SettingRefused(f"{name}: {error}") from None
        assert remote is not None, "each value is non-empty JSON"
        remotes[name] = remote
    return remotes


NOT_SETTINGS: Final = frozenset(
    {
        *("COATCHECK_API_KEY", "COATCHECK_CONFIG", "COATCHECK_ORG", "COATCHECK_PROFILE"),
        *("COATCHECK_CRASH_AT", "COATCHECK_TEST_DSN", "COATCHECK_URL"),
    }
)
"""Variables that clients, commands and tests use; they are not typos of settings."""

_TYPO_SIMILARITY_MIN: Final = 0.7
_DAY_SECONDS: Final = 86_400
_TEN_YEARS_SECONDS: Final = 10 * 365 * _DAY_SECONDS


def _user_blob_url() -> str:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return (Path(home) / "coatcheck" / "blobs").as_uri()


def _user_temp_dir() -> str:
    return str(Path(tempfile.gettempdir(), f"coatcheck-{os.getuid()}"))


def _lane_defaults(attribute: str) -> str:
    return ",".join(
        f"{lane}={getattr(policy, attribute):g}" for lane, policy in DEFAULT_POLICIES.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a process. Tests may create one directly."""

    database_url: str = setting(
        "DATABASE_URL",
        "The PostgreSQL database (version 18 or newer): queue, state and result store. Connect "
        "directly or through a session pooler: LISTEN and advisory locks do not work through a "
        "transaction pooler. `coatcheck up` sets it for its own processes.",
        allowed="postgresql://host:port/database, with user:password@ before the host",
        parse=parsers.database_url,
        secret=True,
    )
    blob_url: str = setting(
        "BLOB_URL",
        "The blob container, for data too large for a row. All processes must use the same one. "
        "The credentials of a cloud store come from its usual variables. The default works for "
        "processes of one user on one machine.",
        allowed="file:///absolute/folder, s3://bucket/prefix, az://container/prefix, "
        "gs://bucket/prefix",
        parse=parsers.blob_url,
        default=_user_blob_url,
        shown_default="`coatcheck/blobs` in the user's data folder "
        "(`$XDG_DATA_HOME`, else `~/.local/share`)",
        secret=True,
    )
    temp_dir: Path = setting(  # noqa: RUF009 - a dataclass field
        "TEMP_DIR",
        "Where a worker creates the private folders of isolated jobs; each is deleted when its job "
        "ends.",
        allowed="an absolute path",
        parse=parsers.absolute_path,
        default=_user_temp_dir,
        shown_default="`coatcheck-UID` in the system's temporary folder",
    )
    products: tuple[str, ...] = setting(
        "PRODUCTS",
        "Which products are on: the APIs that servers serve, the work that workers do beside that "
        "of your services, and their maintenance. A product that is off is not imported, and its "
        "paths answer 404. Set it alike for servers and workers.",
        allowed="names of installed products, with commas between, such as gateway,batches",
        parse=parsers.product_names,
        default="",
        shown_default="all that are installed: batches, console, gateway, graphs, llm, scrape and "
        "speech, and those of other distributions",
    )
    host: str = setting(
        "HOST",
        "The address that `coatcheck serve` listens on; `0.0.0.0` means every IPv4 address.",
        allowed="a host name or address",
        parse=parsers.non_empty,
        default="127.0.0.1",
    )
    port: int = setting(
        "PORT",
        "The TCP port that `coatcheck serve` listens on.",
        allowed="a whole number from 1 to 65535",
        parse=parsers.whole_number(1, 65_535),
        default="8080",
    )
    processes: int = setting(
        "PROCESSES",
        "How many processes `coatcheck serve` runs. They share its port and the bounds of one "
        "server: each process enforces its part of them. Each has up to 12 connections to "
        "PostgreSQL.",
        allowed="a whole number from 1 to 64",
        parse=parsers.whole_number(1, 64),
        default="1",
    )
    connections: int = setting(
        "CONNECTIONS",
        "The maximum number of connections to one server. It is lower if the system does not allow "
        "the server to open that many files. Responses that are held open may use four fifths of "
        "them.",
        allowed="a whole number from 1 to 1000000",
        parse=parsers.whole_number(1, 1_000_000),
        default="10000",
    )
    connections_per_address: int = setting(
        "CONNECTIONS_PER_ADDRESS",
        "The maximum number of connections per address without a valid credential, and of "
        "responses held open for one address. An IPv6 address counts as its /64. 0: no limit per "
        "address.",
        allowed="a whole number from 0 to 1000000",
        parse=parsers.whole_number(0, 1_000_000),
        default="1000",
    )
    proxies: tuple[parsers.Network, ...] = setting(
        "PROXIES",
        "The addresses of your reverse proxies, as this server sees them. "
        "COATCHECK_CONNECTIONS_PER_ADDRESS does not apply to them, because everybody's connections "
        "come from them: let the proxy limit its callers. Headers such as X-Forwarded-For are "
        "ignored.",
        allowed="comma-separated addresses or CIDR networks, or none",
        parse=parsers.networks,
        default="127.0.0.0/8,::1",
    )
    cors_origins: tuple[str, ...] = setting(
        "CORS_ORIGINS",
        "The origins of web pages that may call the API from a browser, exactly as the browser "
        "sends them; `*` means any. A page still needs a key or a token. The dashboard accepts no "
        "other origins.",
        allowed="comma-separated origins such as https://app.example.com, or *",
        parse=parsers.origins,
        default="",
        shown_default="none",
    )
    held_answers_per_key: int = setting(
        "HELD_ANSWERS_PER_KEY",
        "How many responses a server holds open for one API key, or for one user or service with "
        "tokens: streams, long-polls, calls that wait for their result, live dashboard pages. "
        "0: no limit.",
        allowed="a whole number from 0 to 1000000",
        parse=parsers.whole_number(0, 1_000_000),
        default="500",
    )
    held_answers_per_org: int = setting(
        "HELD_ANSWERS_PER_ORG",
        "The same for all keys and tokens of one organisation together. 0: no limit.",
        allowed="a whole number from 0 to 1000000",
        parse=parsers.whole_number(0, 1_000_000),
        default="1000",
    )
    lane_concurrency: Mapping[Lane, int] = setting(
        "LANE_CONCURRENCY",
        "How many jobs of each lane one worker runs at once. With 0 a worker leaves the lane to "
        "other workers; a lane that is not named keeps its default.",
        allowed="comma-separated lane=number pairs, each number 0 to 10000, not all 0",
        parse=parsers.by_lane(parsers.whole_number(0, 10_000), _lane_defaults("concurrency")),
        default=_lane_defaults("concurrency"),
    )
    lane_reserved_percent: Mapping[Lane, float] = setting(
        "LANE_RESERVED_PERCENT",
        "The percentage of a worker's slots in each lane reserved for organisations that use none "
        "of them: at least one slot of two or more, unless it is 0. With only one organisation, "
        "none are reserved.",
        allowed="comma-separated lane=percent pairs, each 0 to 90",
        parse=parsers.by_lane(parsers.number(0, 90), _lane_defaults("reserved_percent")),
        default=_lane_defaults("reserved_percent"),
    )
    calls_concurrency: int = setting(
        "CALLS_CONCURRENCY",
        "How many http upstream calls, starts of remote work and page fetches one worker runs at "
        "once in each lane. They use none of the slots of COATCHECK_LANE_CONCURRENCY, but a worker "
        "with 0 slots in a lane makes no calls of that lane either. Each holds its input, at most "
        "1 MiB, in memory.",
        allowed="a whole number from 1 to 10000",
        parse=parsers.whole_number(1, 10_000),
        default="100",
    )
    call_timeout_seconds_max: int = setting(
        "CALL_TIMEOUT_SECONDS_MAX",
        "The longest timeout of endpoints that organisations register with an http upstream or a "
        "remote. `coatcheck orgs limit --timeout-max` lets an organisation use a longer one. "
        "Endpoints registered earlier with a longer one are called with this. It does not apply to "
        "services in your workers' own code.",
        allowed="a whole number from 1 to 86400",
        parse=parsers.whole_number(1, _DAY_SECONDS),
        default="3600",
    )
    lane_retries: Mapping[Lane, int] = setting(
        "LANE_RETRIES",
        "How often a failed job of each lane is retried, unless its endpoint says otherwise.",
        allowed="comma-separated lane=number pairs, each number 0 to 100",
        parse=parsers.by_lane(parsers.whole_number(0, 100), _lane_defaults("retries")),
        default=_lane_defaults("retries"),
    )
    lane_ack_seconds: Mapping[Lane, float] = setting(
        "LANE_ACK_SECONDS",
        "How long a worker may be silent before it loses each lane's jobs; a worker known to be "
        "dead loses them at once. This does not limit the running time: the endpoint's timeout "
        "does.",
        allowed="comma-separated lane=seconds pairs, each 1 to 86400",
        parse=parsers.by_lane(parsers.number(1, _DAY_SECONDS), _lane_defaults("ack_seconds")),
        default=_lane_defaults("ack_seconds"),
    )
    keep_completed_seconds: int = setting(
        "KEEP_COMPLETED_SECONDS",
        "How long a completed job and its result are kept, unless its endpoint says otherwise.",
        allowed="a whole number from 0 to 315360000 (ten years)",
        parse=parsers.whole_number(0, _TEN_YEARS_SECONDS),
        default=str(_DAY_SECONDS),
    )
    keep_failed_seconds: int = setting(
        "KEEP_FAILED_SECONDS",
        "How long a failed or cancelled job and its error are kept, unless its endpoint says "
        "otherwise.",
        allowed="a whole number from 0 to 315360000 (ten years)",
        parse=parsers.whole_number(0, _TEN_YEARS_SECONDS),
        default=str(7 * _DAY_SECONDS),
    )
    poll_seconds_min: float = setting(
        "POLL_SECONDS_MIN",
        "How often an idle worker polls for jobs when no notification arrives.",
        allowed="a number from 0.05 to 3600, at most COATCHECK_POLL_SECONDS_MAX",
        parse=parsers.number(0.05, 3600),
        default="1",
    )
    poll_seconds_max: float = setting(
        "POLL_SECONDS_MAX",
        "How far that interval grows while the database is unreachable.",
        allowed="a number from 0.05 to 3600",
        parse=parsers.number(0.05, 3600),
        default="30",
    )
    body_memory_mb: int = setting(
        "BODY_MEMORY_MB",
        "How much memory the request bodies that one server is receiving may use, in MiB. One "
        "organisation may use a quarter of it. Callers without a credential share another "
        "sixteenth, of which one address may use a quarter. Each of COATCHECK_PROCESSES may use "
        "its part, and at least 128.",
        allowed="a whole number from 128 to 1048576",
        parse=parsers.whole_number(128, 1024 * 1024),
        default="128",
    )
    answer_memory_mb: int = setting(
        "ANSWER_MEMORY_MB",
        "How much memory responses larger than 64 KiB may use while they are sent, in MiB. One "
        "organisation may use a quarter of it. A result is held once, however many callers read "
        "it. Each of COATCHECK_PROCESSES may use its part, and at least 128.",
        allowed="a whole number from 128 to 1048576",
        parse=parsers.whole_number(128, 1024 * 1024),
        default="256",
    )
    drain_seconds: float = setting(
        "DRAIN_SECONDS",
        "The grace period at SIGTERM: running jobs and open requests get this long to end. "
        "Remaining jobs go back to the queue without spending an attempt. Keep it below your "
        "supervisor's own limit.",
        allowed="a number from 0 to 3600",
        parse=parsers.number(0, 3600),
        default="25",
    )
    egress_allow: tuple[AllowRule, ...] = setting(
        "EGRESS_ALLOW",
        "Hosts that webhooks and http upstreams may call although they are not on the public "
        "internet, also over plain http. Anyone who may register a service can then have them "
        "called; all other non-public addresses stay unreachable.",
        allowed="comma-separated host, host:port, address, [IPv6 address]:port or CIDR",
        parse=parse_allow,
        default="",
        shown_default="nothing",
    )
    dns_servers: tuple[str, ...] = setting(
        "DNS_SERVERS",
        "The name servers that resolve the hosts of webhooks, http upstreams, remotes and pages. "
        "They are queried over UDP only, so at most about 70 addresses of a name are seen.",
        allowed="comma-separated address, address:port or [IPv6 address]:port",
        parse=parsers.name_servers,
        default="",
        shown_default="the system's",
    )
    webhook_loopback: bool = setting(
        "WEBHOOK_LOOPBACK",
        "Whether webhooks may be sent to the servers' own machine (127.0.0.0/8, ::1, localhost), "
        "also over plain http. For development: anyone who may submit a job can then send posts to "
        "any port there. `coatcheck up` switches it on unless it is set.",
        allowed="on, off",
        parse=parsers.switch,
        default="off",
    )
    public_url: str = setting(
        "PUBLIC_URL",
        "The URL under which this server is reached from outside. Remotes get URLs below it: to "
        "call back when they are done, and to fetch files from. `coatcheck up` uses its own "
        "address.",
        allowed="an http:// or https:// URL, up to where the API's paths begin",
        parse=parsers.optional(parsers.http_url),
        default="",
        shown_default="none: remotes are polled and cannot call back",
    )
    log_level: str = setting(
        "LOG_LEVEL",
        "The lowest level to log. `debug` also shows the traceback of an error that ends a "
        "command.",
        allowed="debug, info, warning, error",
        parse=parsers.one_of("debug", "info", "warning", "error"),
        default="info",
    )
    log_format: LogFormat = setting(  # noqa: RUF009 - a dataclass field
        "LOG_FORMAT",
        "`json`: one object per line. `pretty`: for people. `auto`: pretty on a terminal.",
        allowed="auto, json, pretty",
        parse=parsers.one_of("auto", "json", "pretty"),
        default="auto",
    )
    log_events: bool = setting(
        "LOG_EVENTS",
        "Whether to log a line at `info` for each request (method, route, status, milliseconds, "
        "organisation, job) and for each job's end.",
        allowed="on, off",
        parse=parsers.switch,
        default="on",
    )
    key_pepper: str = setting(
        "KEY_PEPPER",
        "The secret that API keys are hashed with. It must be the same on every server of one "
        "database; changing it invalidates every key. `coatcheck up` creates one in its data "
        "folder.",
        allowed=f"at least {tenants.PEPPER_CHARACTERS_MIN} characters",
        parse=parsers.optional(parsers.long_secret(tenants.PEPPER_CHARACTERS_MIN)),
        default="",
        shown_default="none: `coatcheck serve` and commands that create keys need it",
        secret=True,
    )
    secret_keys: tuple[str, ...] = setting(
        "SECRET_KEYS",
        "The keys that seal the secrets of registered services: headers of http upstreams, tokens "
        "of remotes. The first key seals, and all of them open. They must be the same on every "
        "server and worker of one database. Do not lose them: secrets sealed with a lost key must "
        "be registered again. `coatcheck up` creates one in its data folder.",
        allowed=f"keys of at least {KEY_CHARACTERS_MIN} characters, separated by commas or blanks",
        parse=parsers.secret_keys(KEY_CHARACTERS_MIN),
        default="",
        shown_default="none: needed once a service with secrets is registered",
        secret=True,
    )
    dev_key: str = setting(
        "DEV_KEY",
        "The API key that `coatcheck up` creates for you, instead of a random one. No other "
        "command uses it.",
        allowed=tenants.FORMAT,
        parse=parsers.optional(parsers.api_key),
        default="",
        shown_default="a random key",
        secret=True,
    )
    jwt_secret: str = setting(
        "JWT_SECRET",
        "The secret that users' tokens (JWT, HS256) are signed with. Set it together with "
        "COATCHECK_JWT_ISSUER and COATCHECK_JWT_AUDIENCE.",
        allowed=f"at least {SECRET_CHARACTERS_MIN} characters",
        parse=parsers.optional(parsers.long_secret(SECRET_CHARACTERS_MIN)),
        default="",
        shown_default="none: no such tokens are accepted",
        secret=True,
    )
    jwt_issuer: str = setting(
        "JWT_ISSUER",
        "The required `iss` claim of those tokens.",
        allowed="text without spaces",
        parse=parsers.optional(parsers.non_empty),
        default="",
        shown_default="none",
    )
    jwt_audience: str = setting(
        "JWT_AUDIENCE",
        "The required `aud` claim of those tokens, or one of its values.",
        allowed="text without spaces",
        parse=parsers.optional(parsers.non_empty),
        default="",
        shown_default="none",
    )
    jwt_issuers: tuple[TokenIssuer, ...] = setting(
        "JWT_ISSUERS",
        "Further token issuers, for users' tokens and service tokens, with a shared secret or a "
        "key set (JWKS). See docs/how-to/use-jwts.md.",
        allowed="a JSON list of objects with issuer, audience, either secret or jwks_url, and "
        "optionally algorithms, kind (user or service) and org_claim",
        parse=parsers.token_issuers,
        default="[]",
        shown_default="none",
        secret=True,
    )
    operator_org: str = setting(
        "OPERATOR_ORG",
        "The organisation whose admins operate this deployment: they may manage the jobs, "
        "webhooks, keys and usage of every organisation, and see the workers. `coatcheck up` uses "
        "`default`.",
        allowed=ORG_ID_ALLOWED,
        parse=parsers.optional(parsers.org_id),
        default="",
        shown_default="none: nobody sees more than one organisation",
    )
    stripe_webhook_secret: str = setting(
        "STRIPE_WEBHOOK_SECRET",
        "The signing secret of Stripe's webhook. Setting it turns billing on: an organisation "
        "without an active subscription cannot submit new work.",
        allowed="whsec_..., as Stripe shows it",
        parse=parsers.optional(parsers.stripe_secret),
        default="",
        shown_default="none: billing is off, and every organisation is active",
        secret=True,
    )
    stripe_api_key: str = setting(
        "STRIPE_API_KEY",
        "The key that servers send usage to Stripe with. Setting it turns sending on: every hour, "
        "for each organisation with a Stripe customer, the measures of COATCHECK_STRIPE_METERS. A "
        "restricted key that may write meter events and read meters suffices. Workers need none.",
        allowed="sk_... or rk_..., as Stripe shows it",
        parse=parsers.optional(parsers.stripe_api_key),
        default="",
        shown_default="none: no usage is sent to Stripe",
        secret=True,
    )
    stripe_meters: Mapping[str, str] = setting(
        "STRIPE_METERS",
        "The measures to send to Stripe, each with the event name of its meter there. Measures: "
        f"{', '.join(METERED)}. Set it together with COATCHECK_STRIPE_API_KEY.",
        allowed="comma-separated measure=event_name pairs, such as "
        "completed=jobs_completed,run_seconds=job_seconds",
        parse=parsers.stripe_meters,
        default="",
        shown_default="none",
    )
    usage_reports: str = setting(
        "USAGE_REPORTS",
        "How often a usage report is made for each organisation: at the end of each day, week "
        "(from Monday) or month, in UTC. Reports can be read over HTTP, and webhooks announce them "
        "as `usage.report`. It must be the same for every server and worker.",
        allowed="off, daily, weekly, monthly",
        parse=parsers.one_of("off", "daily", "weekly", "monthly"),
        default="monthly",
    )
    archive_ttl_seconds: int = setting(
        "ARCHIVE_TTL_SECONDS",
        "How long a customer's archive is kept, whatever becomes of its job. A job that has not "
        "started by then fails.",
        allowed="a whole number from 1 to 86400",
        parse=parsers.whole_number(1, _DAY_SECONDS),
        default="3600",
    )
    archive_entries_max: int = setting(
        "ARCHIVE_ENTRIES_MAX",
        "How many entries a customer's archive may have: files of any kind, and directories. "
        "Larger archives are refused. Checking one needs about 300 bytes of memory per entry on a "
        "server, and about 700 on a worker. It must be the same for servers and workers.",
        allowed="a whole number from 1 to 5000000",
        parse=parsers.whole_number(1, 5_000_000),
        default=str(ARCHIVE_ENTRIES_MAX),
    )
    archive_unpacked_mb_max: int = setting(
        "ARCHIVE_UNPACKED_MB_MAX",
        "The total unpacked size that a customer's archive may have, in MiB. Larger archives are "
        "refused. It must be the same for servers and workers.",
        allowed="a whole number from 1 to 1048576",
        parse=parsers.whole_number(1, 1024 * 1024),
        default=str(ARCHIVE_UNPACKED_MB_MAX),
    )
    graphs_concurrency: int = setting(
        "GRAPHS_CONCURRENCY",
        "How many archives one worker analyses at once. Together they use as many parsers as the "
        "worker has cores, plus one for each archive after the first. With 0 a worker leaves them "
        "to other workers.",
        allowed="a whole number from 0 to 1000",
        parse=parsers.whole_number(0, 1_000),
        default="4",
    )
    graphs_memory_mb: int = setting(
        "GRAPHS_MEMORY_MB",
        "The address space of the process that analyses an archive, and of each of its parsers, in "
        "MiB. A file that needs more fails; a graph that needs more fails its job.",
        allowed="a whole number from 256 to 1048576",
        parse=parsers.whole_number(256, 1024 * 1024),
        default="4096",
    )
    graphs_retry_after_seconds: Mapping[str, int] = setting(
        "GRAPHS_RETRY_AFTER_SECONDS",
        "A fixed `Retry-After` for callers that poll for a graph: for all operations, or for each. "
        "For an operation without a number it is estimated from the recent run times of its jobs, "
        "and is 10 while there are none.",
        allowed="empty; a whole number from 1 to 3600; or comma-separated operation=number pairs, "
        "where an operation is dependency, call, domain, parse or supermodel",
        parse=parsers.by_operation(parsers.whole_number(1, 3_600), GRAPH_OPERATIONS),
        default="",
        shown_default="none: an estimate from recent run times, 10 while there are none",
    )
    graphs_llm_url: str = setting(
        "GRAPHS_LLM_URL",
        "The base URL of an OpenAI-compatible API that names the domains of a graph. Workers send "
        "it paths and names from the archive, never source text.",
        allowed="an http:// or https:// URL, up to where /chat/completions begins",
        parse=parsers.optional(parsers.http_url),
        default="",
        shown_default="none: domains are named after their common path and identifiers",
    )
    graphs_llm_model: str = setting(
        "GRAPHS_LLM_MODEL",
        "The model to use there.",
        allowed="text without spaces",
        parse=parsers.optional(parsers.non_empty),
        default="",
        shown_default="none",
    )
    graphs_llm_key: str = setting(
        "GRAPHS_LLM_KEY",
        "The bearer token for it, if it needs one.",
        allowed="text without spaces",
        parse=parsers.optional(parsers.non_empty),
        default="",
        shown_default="none",
        secret=True,
    )
    services_max: int = setting(
        "SERVICES_MAX",
        "How many services an organisation may register over HTTP.",
        allowed="a whole number from 0 (none) to 10000",
        parse=parsers.whole_number(0, 10_000),
        default="200",
    )
    batch_small_tasks: int = setting(
        "BATCH_SMALL_TASKS",
        "A closed batch with fewer tasks than this and at most 1 MiB is stored while its caller "
        "waits, and answered with 201. A worker ingests anything else.",
        allowed="a whole number from 0 (never) to 10000",
        parse=parsers.whole_number(0, 10_000),
        default="1000",
    )
    batch_keep_seconds: int = setting(
        "BATCH_KEEP_SECONDS",
        "How long a batch is kept after its end, with its tasks, their results and their files, "
        "unless it says otherwise (`keep_seconds`). The other retention settings do not apply to "
        "it.",
        allowed="a whole number from 0 to 315360000 (ten years)",
        parse=parsers.whole_number(0, _TEN_YEARS_SECONDS),
        default=str(14 * _DAY_SECONDS),
    )
    batch_url_seconds: int = setting(
        "BATCH_URL_SECONDS",
        "How long the signed URLs of a batch's results are valid: those of its tasks' files, and "
        "those of its exports, which are kept for as long. None outlives its batch.",
        allowed="a whole number from 60 to 604800 (seven days, the longest that cloud stores "
        "allow)",
        parse=parsers.whole_number(60, SIGNED_URL_SECONDS_MAX),
        default=str(_DAY_SECONDS),
    )
    scrape_gateway: ScrapeGateway = setting(  # noqa: RUF009 - a dataclass field
        "SCRAPE_GATEWAY",
        "The gateway through which the service `scrape` fetches pages: an HTTP proxy, or a URL "
        "in which `{url}` is replaced by the page's percent-encoded URL. The gateway may be on "
        "your own network; the pages may not, see docs/how-to/scrape.md.",
        allowed="http://host:port, with user:password@ before the host if needed; or an http:// "
        "or https:// URL with {url} in its path or query",
        parse=parse_gateway,
        default="",
        shown_default="none: the workers fetch pages themselves",
        secret=True,
    )
    scrape_bytes_max: int = setting(
        "SCRAPE_BYTES_MAX",
        "The longest body that the service `scrape` stores, in bytes after decompression. A fetch "
        "of a longer one fails.",
        allowed="a whole number from 1 to 1073741824 (1 GiB)",
        parse=parsers.whole_number(1, 1024 * 1024 * 1024),
        default=str(10 * 1024 * 1024),
    )
    llm_url: str = setting(
        "LLM_URL",
        "The base URL of the server with Ollama's API that answers chats. For several servers, use "
        "COATCHECK_LLM_TARGETS. It may be on your own network. Workers send it chats, and servers "
        "query its models.",
        allowed="an http:// or https:// URL, up to where /api/chat begins, such as "
        "http://127.0.0.1:11434",
        parse=parsers.optional(parsers.http_url),
        default="",
        shown_default="none: the chat APIs answer 404, unless COATCHECK_LLM_TARGETS is set",
    )
    llm_token: str = setting(
        "LLM_TOKEN",
        "The bearer token for it, if it needs one.",
        allowed="visible ASCII characters without spaces",
        parse=parsers.optional(bearer_token),
        default="",
        shown_default="none",
        secret=True,
    )
    llm_concurrency: int = setting(
        "LLM_CONCURRENCY",
        "How many chats it gets at once from all workers together.",
        allowed=f"a whole number from 1 to {CONCURRENCY_MAX}",
        parse=parsers.whole_number(1, CONCURRENCY_MAX),
        default="1",
    )
    llm_targets: tuple[LlmTarget, ...] = setting(
        "LLM_TARGETS",
        "Several servers with Ollama's API, instead of COATCHECK_LLM_URL. A job goes to one that "
        "has its model and a free slot. Every process must name the same ones.",
        allowed="a JSON list of objects with name, url, and optionally token and concurrency (1)",
        parse=parse_targets,
        default="[]",
        shown_default="none",
        secret=True,
    )
    llm_turn_seconds: float = setting(
        "LLM_TURN_SECONDS",
        "How long jobs of a target's loaded models may run before older jobs of another model, so "
        "that models are not swapped back and forth.",
        allowed="a number from 0 (strictly by age) to 86400",
        parse=parsers.number(0, _DAY_SECONDS),
        default="30",
    )
    llm_keep_seconds: int = setting(
        "LLM_KEEP_SECONDS",
        "How long a chat's answer is kept after its end; the question is deleted at the end "
        "itself. A failed or cancelled chat is kept for COATCHECK_KEEP_FAILED_SECONDS together "
        "with its question, so that it can be retried.",
        allowed="a whole number from 0 to 315360000 (ten years)",
        parse=parsers.whole_number(0, _TEN_YEARS_SECONDS),
        default=str(_DAY_SECONDS),
    )
    llm_cancel_abandoned: bool = setting(
        "LLM_CANCEL_ABANDONED",
        "Whether a chat is cancelled at once when its synchronous caller disconnects. A chat "
        "continues if it was queued, or has an idempotency key or a webhook of its own. Off: every "
        "chat continues, and a retry by the caller's client joins it.",
        allowed="on, off",
        parse=parsers.switch,
        default="off",
    )
    remotes: Mapping[str, OperatorRemote] = setting(
        "REMOTES",
        "Remote functions, such as on Modal, that every organisation's services may use by name; "
        "docs/reference/remotes.md describes the targets. They may be on your own network. Every "
        "process must name the same ones.",
        allowed='{"NAME": {"target": {"adapter": ...}, "secrets": {"NAME": "VALUE"}}, ...}',
        parse=parse_remotes,
        default="",
        shown_default="none",
        secret=True,
    )
    speech_remote_url: str = setting(
        "SPEECH_REMOTE_URL",
        "The base URL of the remote that generates speech: a server with submit-job, job-status, "
        "job-result and job-cancel. It may be on your own network. Every process must name the "
        "same one.",
        allowed="an http:// or https:// URL, up to where /submit-job begins, such as "
        "http://127.0.0.1:8900",
        parse=parsers.optional(parsers.http_url),
        default="",
        shown_default="none: POST /generate answers 404, unless COATCHECK_SPEECH_REMOTE is set",
    )
    speech_remote_token: str = setting(
        "SPEECH_REMOTE_TOKEN",
        "The bearer token for it, if it needs one.",
        allowed="visible ASCII characters without spaces",
        parse=parsers.optional(bearer_token),
        default="",
        shown_default="none",
        secret=True,
    )
    speech_remote: OperatorRemote | None = setting(  # noqa: RUF009 - a dataclass field
        "SPEECH_REMOTE",
        "A remote with any adapter, such as a function on Modal, instead of "
        "COATCHECK_SPEECH_REMOTE_URL; docs/reference/remotes.md describes the targets.",
        allowed='{"target": {"adapter": ...}, "secrets": {"NAME": "VALUE"}}',
        parse=parse_remote,
        default="",
        shown_default="none",
        secret=True,
    )
    speech_timeout_seconds: float = setting(
        "SPEECH_TIMEOUT_SECONDS",
        "How long the remote may take to speak one text, before it is cancelled and the text is "
        "retried.",
        allowed="a number from 1 to 86400",
        parse=parsers.number(1, _DAY_SECONDS),
        default="3600",
    )
    lanes: Mapping[Lane, LanePolicy] = field(init=False)
    """The lane settings as one policy per lane."""
    token_issuers: tuple[TokenIssuer, ...] = field(init=False)
    """All issuers whose tokens are accepted."""

    def __post_init__(self) -> None:
        policies = {
            lane: LanePolicy(
                retries=self.lane_retries[lane],
                ack_seconds=self.lane_ack_seconds[lane],
                concurrency=self.lane_concurrency[lane],
                reserved_percent=self.lane_reserved_percent[lane],
            )
            for lane in Lane
        }
        object.__setattr__(self, "lanes", MappingProxyType(policies))
        object.__setattr__(self, "token_issuers", self._own_issuer() + self.jwt_issuers)
        if self.llm_url:
            only = LlmTarget(ONLY_TARGET, self.llm_url, self.llm_token, self.llm_concurrency)
            object.__setattr__(self, "llm_targets", (only,))
        if self.speech_remote_url:
            remote = over_http(self.speech_remote_url, self.speech_remote_token)
            object.__setattr__(self, "speech_remote", remote)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read and check all settings. Raises SettingsInvalid, which lists every error."""
        values, problems = _read(environ)
        if problems:
            raise SettingsInvalid(_describe(problems))
        return cls(**values)

    def require(self, name: str) -> str:
        """A setting that only some commands need. Raises SettingsInvalid if it is not set."""
        value: str = getattr(self, name)
        if not value:
            declared = SETTINGS[name]
            raise SettingsInvalid(
                f"{declared.variable} is not set; allowed: {declared.allowed}\n{declared.meaning}"
            )
        return value

    def require_for_serving(self) -> None:
        """Raise SettingsInvalid unless ``coatcheck serve`` can start with these settings; a worker
        needs fewer."""
        self.require("key_pepper")

    @property
    def speech_target(self) -> OperatorRemote | None:
        """The remote that generates speech, whichever setting names it."""
        return self.speech_remote

    def _own_issuer(self) -> tuple[TokenIssuer, ...]:
        if not (self.jwt_secret and self.jwt_issuer and self.jwt_audience):
            return ()
        return (
            TokenIssuer(issuer=self.jwt_issuer, audience=self.jwt_audience, secret=self.jwt_secret),
        )


def check_environment(environ: Mapping[str, str], *, except_for: str) -> None:
    """Raise SettingsInvalid for every wrong setting except the variable ``except_for``.

    For a command that sets one only later, but should not start with others wrong.
    """
    _, problems = _read(environ)
    problems = {name: text for name, text in problems.items() if name != except_for}
    if problems:
        raise SettingsInvalid(_describe(problems))


def likely_typos(environ: Mapping[str, str]) -> dict[str, str]:
    """Unknown COATCHECK_ variables that resemble a known one, each with that one."""
    known = {declared.variable.removeprefix(PREFIX) for declared in SETTINGS.values()}
    typos: dict[str, str] = {}
    for name in sorted(environ):
        suffix = name.removeprefix(PREFIX)
        if not name.startswith(PREFIX) or suffix in known or name in NOT_SETTINGS:
            continue
        nearest = difflib.get_close_matches(suffix, known, n=1, cutoff=_TYPO_SIMILARITY_MIN)
        if nearest:
            typos[name] = PREFIX + nearest[0]
    return typos


def _read(environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values by field name, and the errors by variable."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, declared in SETTINGS.items():
        given = environ.get(declared.variable, "").strip()
        if given:
            try:
                values[name] = declared.parse(given)
            except parsers.SettingRefused as refused:
                problems[declared.variable] = _refusal(declared, given, str(refused))
        elif declared.required:
            problems[declared.variable] = f"is not set; allowed: {declared.allowed}"
    _check_together(values, problems)
    return values, problems


def _check_together(values: dict[str, Any], problems: dict[str, str]) -> None:
    # Combined with the defaults, so that one variable alone can be wrong, too.
    whole = Settings(**({"database_url": ""} | values))
    if whole.poll_seconds_min > whole.poll_seconds_max:
        problems["COATCHECK_POLL_SECONDS_MIN"] = (
            f"is {whole.poll_seconds_min:g}, above COATCHECK_POLL_SECONDS_MAX "
            f"({whole.poll_seconds_max:g})"
        )
    if not any(whole.lane_concurrency.values()):
        problems["COATCHECK_LANE_CONCURRENCY"] = "is 0 for every lane; one must be above 0"
    pair = {
        "COATCHECK_GRAPHS_LLM_URL": whole.graphs_llm_url,
        "COATCHECK_GRAPHS_LLM_MODEL": whole.graphs_llm_model,
    }
    _check_all_or_none(pair, problems)
    metering = {
        "COATCHECK_STRIPE_API_KEY": whole.stripe_api_key,
        "COATCHECK_STRIPE_METERS": ",".join(whole.stripe_meters),
    }
    _check_all_or_none(metering, problems)
    _check_tokens(whole, problems)
    _check_llm(values, problems)
    _check_speech(values, problems)


def _check_speech(values: dict[str, Any], problems: dict[str, str]) -> None:
    known = values.keys() | {name for name in SETTINGS if SETTINGS[name].variable in problems}
    if "speech_remote_url" in known and "speech_remote" in known:
        problems["COATCHECK_SPEECH_REMOTE"] = (
            "is set, and so is COATCHECK_SPEECH_REMOTE_URL; set one of them"
        )
    if "speech_remote_token" in known and "speech_remote_url" not in known:
        problems.setdefault(
            "COATCHECK_SPEECH_REMOTE_TOKEN",
            "is set, but COATCHECK_SPEECH_REMOTE_URL is not; COATCHECK_SPEECH_REMOTE has its own "
            "secrets",
        )


def _check_llm(values: dict[str, Any], problems: dict[str, str]) -> None:
    known = values.keys() | {name for name in SETTINGS if SETTINGS[name].variable in problems}
    if "llm_url" in known and "llm_targets" in known:
        problems["COATCHECK_LLM_TARGETS"] = "is set, and so is COATCHECK_LLM_URL; set one of them"
    for name in ("llm_token", "llm_concurrency"):
        if name in known and "llm_url" not in known:
            variable = SETTINGS[name].variable
            problems.setdefault(
                variable,
                "is set, but COATCHECK_LLM_URL is not; each of COATCHECK_LLM_TARGETS has its own",
            )


def _check_tokens(whole: Settings, problems: dict[str, str]) -> None:
    trio = {
        "COATCHECK_JWT_SECRET": whole.jwt_secret,
        "COATCHECK_JWT_ISSUER": whole.jwt_issuer,
        "COATCHECK_JWT_AUDIENCE": whole.jwt_audience,
    }
    _check_all_or_none(trio, problems)
    try:
        check_apart(whole.token_issuers)
    except ValueError as error:
        problems["COATCHECK_JWT_ISSUERS"] = f"and the other JWT settings clash: {error}"


def _check_all_or_none(together: Mapping[str, str], problems: dict[str, str]) -> None:
    given = [name for name, value in together.items() if value or name in problems]
    for name in together:
        if given and name not in given:
            problems[name] = f"is not set, but {' and '.join(given)} {_are(given)}"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _refusal(declared: Setting, given: str, why: str) -> str:
    shown = "(hidden: it may contain a password)" if declared.secret else repr(given)
    reason = f" ({why})" if why else ""
    return f"is {shown}, which is not allowed{reason}; allowed: {declared.allowed}"


def _describe(problems: Mapping[str, str]) -> str:
    lines = [f"{name} {problem}" for name, problem in problems.items()]
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{len(lines)} settings are wrong:", *(f"  {line}" for line in lines)])


SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        declared.name: cast("Setting", declared.metadata["setting"])
        for declared in dataclasses.fields(Settings)
        if "setting" in declared.metadata
    }
)
"""All declarations, by field name."""
