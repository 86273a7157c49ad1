"""Parsers for the values of environment variables, and the types that they make."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from coatcheck.domain import tenants
from coatcheck.domain.lanes import Lane
from coatcheck.domain.service_definition import endpoint_key, engine_name
from coatcheck.domain.tenants import is_org_id
from coatcheck.domain.usage import METERED

SECRET_ALGORITHMS: Final = frozenset({"HS256", "HS384", "HS512"})
"""For an issuer that shares its secret with us."""

PUBLIC_ALGORITHMS: Final = frozenset(
    {
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA"),
    }
)
"""For an issuer that publishes its keys."""

SECRET_CHARACTERS_MIN: Final = 32
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class TokenIssuer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An issuer of tokens, and the rules for its tokens.

    Its algorithms are fixed here: the header of a token never chooses one.
    """

    issuer: str
    audience: str
    secret: str | None = None
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ()
    """Empty: HS256 with a secret, RS256 and ES256 with a key set."""
    kind: Literal["user", "service"] = "user"
    org_claim: str = "org"

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "org_claim"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")
        if (self.secret is None) == (self.jwks_url is None):
            raise ValueError("needs either a secret or a jwks_url")
        if not self.algorithms:
            usual = ("HS256",) if self.secret is not None else ("RS256", "ES256")
            msgspec.structs.force_setattr(self, "algorithms", usual)
        if self.secret is not None:
            self._check_secret(self.secret)
        if self.jwks_url is not None:
            self._check_key_set(self.jwks_url)

    def __repr__(self) -> str:
        return f"TokenIssuer({self.issuer!r}, {self.audience!r})"

    def _check_secret(self, secret: str) -> None:
        if len(secret) < SECRET_CHARACTERS_MIN:
            raise ValueError(f"its secret has fewer than {SECRET_CHARACTERS_MIN} characters")
        if not SECRET_ALGORITHMS.issuperset(self.algorithms):
            raise ValueError(f"with a secret, algorithms must be from {_listed(SECRET_ALGORITHMS)}")

    def _check_key_set(self, url: str) -> None:
        if not PUBLIC_ALGORITHMS.issuperset(self.algorithms):
            raise ValueError(
                f"with a jwks_url, algorithms must be from {_listed(PUBLIC_ALGORITHMS)}"
            )
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise ValueError("its jwks_url is not https")
        if not parts.hostname or parts.username is not None:
            raise ValueError("its jwks_url has no host, or contains a user")


def read_issuers(text: str) -> tuple[TokenIssuer, ...]:
    """Parse a JSON list of issuers. Raises ValueError."""
    try:
        issuers = msgspec.json.decode(text.encode(), type=tuple[TokenIssuer, ...])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    check_apart(issuers)
    return issuers


def check_apart(issuers: tuple[TokenIssuer, ...]) -> None:
    """Raise ValueError if a token could match two of these."""
    if len({(each.issuer, each.audience) for each in issuers}) < len(issuers):
        raise ValueError("two of them have the same issuer and audience")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


Value = TypeVar("Value")

_PRODUCT_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_EVENT_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_WITH_PORT: Final = re.compile(r"(?:([0-9.]+)|\[([0-9a-fA-F:.]+)\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65_535
_DNS_PORT: Final = 53


class SettingRefused(ValueError):
    """The text is not allowed; the declaration's ``allowed`` says what is.

    The message may give a reason, without quoting a secret.
    """


def whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise SettingRefused from None
        if not low <= number <= high:
            raise SettingRefused
        return number

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise SettingRefused from None
        if not math.isfinite(number) or not low <= number <= high:
            raise SettingRefused
        return number

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise SettingRefused
        return text.lower()

    return parse


def switch(text: str) -> bool:
    if text.lower() not in ("on", "off"):
        raise SettingRefused
    return text.lower() == "on"


def by_lane(
    parse_value: Callable[[str], Value], defaults: str
) -> Callable[[str], Mapping[Lane, Value]]:
    """Parse ``lane=value`` pairs; a lane that is missing keeps its default."""

    def parse_pairs(text: str) -> dict[Lane, Value]:
        values: dict[Lane, Value] = {}
        for pair in text.split(","):
            name, equals, value = pair.partition("=")
            lane = name.strip().lower()
            if not equals or lane not in set(Lane) or Lane(lane) in values:
                raise SettingRefused
            values[Lane(lane)] = parse_value(value.strip())
        return values

    fallback = parse_pairs(defaults)
    return lambda text: MappingProxyType(fallback | parse_pairs(text))


def by_operation(
    parse_value: Callable[[str], Value], operations: Collection[str]
) -> Callable[[str], Mapping[str, Value]]:
    """Parse one value for all, or ``operation=value`` pairs; a missing operation has none."""

    def parse(text: str) -> Mapping[str, Value]:
        if not text:
            return MappingProxyType({})
        if "=" not in text:
            return MappingProxyType(dict.fromkeys(operations, parse_value(text)))
        values: dict[str, Value] = {}
        for pair in text.split(","):
            name, equals, value = pair.partition("=")
            operation = name.strip().lower()
            if not equals or operation not in operations or operation in values:
                raise SettingRefused
            values[operation] = parse_value(value.strip())
        return MappingProxyType(values)

    return parse


def http_url(text: str) -> str:
    try:
        parts = urlsplit(non_empty(text))
        _ = parts.port  # raises ValueError if it is out of range
    except ValueError:
        raise SettingRefused from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise SettingRefused
    if parts.query or parts.fragment:
        raise SettingRefused  # a path is appended to it
    return text.rstrip("/")


def origins(text: str) -> tuple[str, ...]:
    """Parse comma-separated origins as browsers send them, or ``*`` alone."""
    given = tuple(part.strip() for part in text.split(",") if part.strip())
    if given == ("*",):
        return given
    for origin in given:
        try:
            parts = urlsplit(origin)
            _ = parts.port
        except ValueError:
            raise SettingRefused from None
        # Exactly: a browser sends no path, no default port and no upper case.
        spelt = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in ("http", "https") or not parts.hostname or spelt != origin:
            raise SettingRefused
        if not origin.isascii() or origin != origin.lower() or "@" in parts.netloc:
            raise SettingRefused
    return given


def database_url(text: str) -> str:
    # The driver checks the rest: it supports lists of hosts, sockets and parameters.
    if not text.startswith(("postgresql://", "postgres://")):
        raise SettingRefused
    return text


CLOUD_BLOB_SCHEMES: Final = ("s3", "az", "abfs", "abfss", "gs")


def blob_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise SettingRefused
    if parts.scheme == "file":
        # Anything before the path is a host, or part of a path meant to be relative.
        acceptable = not parts.netloc and parts.path.startswith("/")
    else:
        acceptable = parts.scheme in CLOUD_BLOB_SCHEMES and bool(parts.hostname)
    if not acceptable:
        raise SettingRefused
    return text


def absolute_path(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise SettingRefused
    return path


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """Parse comma-separated addresses and networks, or ``none``."""
    if text.lower() == "none":
        return ()
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in text.split(","))
    except ValueError:
        raise SettingRefused from None


def non_empty(text: str) -> str:
    if not text or any(character.isspace() for character in text):
        raise SettingRefused
    return text


def optional(parse: Callable[[str], str]) -> Callable[[str], str]:
    """Accept what ``parse`` accepts, or an empty text."""
    return lambda text: parse(text) if text else ""


def name_servers(text: str) -> tuple[str, ...]:
    """Parse name servers as ``address:port``, with IPv6 addresses in brackets."""
    return tuple(_name_server(entry.strip()) for entry in text.split(",") if entry.strip())


def _name_server(entry: str) -> str:
    if entry.count(":") > 1 and not entry.startswith("["):
        entry = f"[{entry}]"  # an IPv6 address without a port
    parts = _WITH_PORT.fullmatch(entry)
    if parts is None:
        raise SettingRefused
    try:
        address = ipaddress.ip_address(parts[1] or parts[2])
    except ValueError:
        raise SettingRefused from None
    port = int(parts[3] or _DNS_PORT)
    if not 1 <= port <= _PORT_MAX or (address.version == 6) is (parts[2] is None):
        raise SettingRefused
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def product_names(text: str) -> tuple[str, ...]:
    """Names of products, each once. Whether they are installed is looked up when they are loaded:
    ``coatcheck/installed.py``."""
    names = [name.strip() for name in text.split(",")] if text else []
    for name in names:
        if _PRODUCT_NAME.fullmatch(name) is None:
            raise SettingRefused
    return tuple(dict.fromkeys(names))


def org_id(text: str) -> str:
    if not is_org_id(text):
        raise SettingRefused
    return text


def long_secret(characters_min: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if len(text) < characters_min:
            raise SettingRefused
        return text

    return parse


def secret_keys(characters_min: int) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        keys = tuple(text.replace(",", " ").split())
        if any(len(key) < characters_min for key in keys):
            raise SettingRefused(f"one of its keys has fewer than {characters_min} characters")
        if len(set(keys)) < len(keys):
            raise SettingRefused("it contains a key twice")
        return keys

    return parse


def stripe_secret(text: str) -> str:
    if not text.startswith("whsec_") or text == "whsec_":
        raise SettingRefused
    return text


def stripe_api_key(text: str) -> str:
    kind, _, rest = text.partition("_")
    if kind not in ("sk", "rk") or not rest or not text.isascii() or not text.isprintable():
        raise SettingRefused
    return text


def stripe_meters(text: str) -> Mapping[str, str]:
    """Parse ``measure=event_name`` pairs without duplicates."""
    meters: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        measure, _, name = (word.strip() for word in pair.partition("="))
        is_new = measure not in meters and name not in meters.values()
        if measure not in METERED or not is_new or not _EVENT_NAME.fullmatch(name):
            raise SettingRefused
        meters[measure] = name
    return MappingProxyType(meters)


def api_key(text: str) -> str:
    if tenants.parse(text.encode()) is None:
        raise SettingRefused
    return text


def token_issuers(text: str) -> tuple[TokenIssuer, ...]:
    try:
        return read_issuers(text)
    except ValueError as error:
        raise SettingRefused(str(error)) from None


GRAPHS_SERVICE: Final = "graphs"
"""The service that analyses archives."""

GRAPH_OPERATIONS: Final = ("dependency", "call", "domain", "parse", "supermodel")


def graph_endpoint(operation: str) -> str:
    """The ``endpoint`` of an operation's jobs."""
    return engine_name(GRAPHS_SERVICE, 1, endpoint_key("post", f"/{operation}"))


GRAPH_ENDPOINTS: Final = {graph_endpoint(operation): operation for operation in GRAPH_OPERATIONS}
"""The operations by their jobs' endpoint."""
