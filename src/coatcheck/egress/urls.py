"""Strict URL parsing with one parser: that of the library that connects.

Programs disagree about the meaning of odd URLs, and an attack is a URL that the guard and the
client read differently. So odd URLs are refused, and httpx2 alone reads the rest.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, cast

import httpx2

from coatcheck.domain.errors import UrlForbidden
from coatcheck.settings.egress_allow import looks_numeric

Address = IPv4Address | IPv6Address

_IPV4_UNICAST_FIRST: Final = IPv4Address("1.0.0.0")
_IPV4_UNICAST_LAST: Final = IPv4Address("223.255.255.255")

_IPV4_SPECIAL: Final = tuple(
    map(
        IPv4Network,
        (
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is Alibaba's metadata
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's metadata
            "169.254.0.0/16",  # link-local; 169.254.169.254 is most clouds' metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle's metadata
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # multicast tunnels
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
        ),
    )
)

_IPV6_UNICAST: Final = IPv6Network("2000::/3")
"""Everything IANA has allocated. Mapped, compatible, NAT64, ULA, link- and site-local lie
outside."""

_IPV6_SPECIAL: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: any IPv4 address in disguise
            "2620:4f:8000::/48",  # AS112
            "3ffe::/16",  # the former 6bone
            "3fff::/20",  # documentation
        ),
    )
)


def is_public(address: Address) -> bool:
    """Whether this is an ordinary unicast address of the internet."""
    if isinstance(address, IPv4Address):
        return _IPV4_UNICAST_FIRST <= address <= _IPV4_UNICAST_LAST and not any(
            address in special for special in _IPV4_SPECIAL
        )
    return (
        address.scope_id is None
        and address in _IPV6_UNICAST
        and not any(address in special for special in _IPV6_SPECIAL)
    )


def parse_retry_after(headers: Mapping[str, str], now: datetime, most: float) -> float | None:
    """The delay that ``Retry-After`` asks for in seconds, between 0 and ``most``, or None.

    ``headers`` has lower-case names. A date is compared with the server's own ``Date`` if it sent
    one.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), most)
    due = _date(value)
    if due is None:
        return None
    seconds = (due - (_date(headers.get("date", "")) or now)).total_seconds()
    return min(max(seconds, 0.0), most)


def _date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


URL_CHARACTERS_MAX: Final = 2_048

Scheme = Literal["http", "https"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PORT_MAX: Final = 65_535
_SHAPE: Final = re.compile(r"https?://(?P<authority>[^/?]+)(?:[/?].*)?", re.IGNORECASE)
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
_NAME: Final = re.compile(
    r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NAME_CHARACTERS_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads: scheme, host and port. ``address`` is set if the host is an IP address."""

    scheme: Scheme
    host: str
    port: int
    address: Address | None


def read_target(url: str, characters_max: int = URL_CHARACTERS_MAX) -> Target:
    """Parse ``url``, if it is spelt plainly. Raises UrlForbidden with the reason otherwise."""
    if len(url) > characters_max:
        raise UrlForbidden(f"The URL must have at most {characters_max} characters.")
    if not url.isprintable() or " " in url or "\\" in url:
        raise UrlForbidden("The URL must have no space, backslash or unprintable character.")
    if "#" in url:
        raise UrlForbidden("The URL must have no fragment.")
    shape = _SHAPE.fullmatch(url)
    if shape is None:
        raise UrlForbidden("The URL must begin with https:// and a host.")
    authority = shape["authority"]
    if "@" in authority:
        raise UrlForbidden("The URL must have no user name or password.")
    if "%" in authority:
        raise UrlForbidden("The URL's host must not be percent-encoded.")
    if ":" in authority.rpartition("]")[2] and not _PORT.search(authority):
        raise UrlForbidden("The URL's port must be a number.")
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise UrlForbidden("The URL is not valid.") from None
    return target_of(parsed)


def target_of(url: httpx2.URL) -> Target:
    """The target of a URL that httpx2 has parsed. Raises UrlForbidden for an odd host or port."""
    if url.scheme not in _DEFAULT_PORTS:
        raise UrlForbidden("The URL must begin with https:// and a host.")
    if url.userinfo:
        raise UrlForbidden("The URL must have no user name or password.")
    port = url.port if url.port is not None else _DEFAULT_PORTS[url.scheme]
    if not 1 <= port <= _PORT_MAX:
        raise UrlForbidden("The URL's port must lie between 1 and 65535.")
    host = url.raw_host.decode("ascii")
    return Target(cast("Scheme", url.scheme), host, port, _address(host))


def _address(host: str) -> Address | None:
    """The IP address that ``host`` spells, or None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass  # a name
    # The remaining numeric spellings are ones that resolvers read as addresses and people do not.
    if looks_numeric(host):
        raise UrlForbidden("The URL's host is an address in an unusual spelling.")
    if len(host) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(host):
        raise UrlForbidden("The URL's host is not a valid host name.")
    return None
