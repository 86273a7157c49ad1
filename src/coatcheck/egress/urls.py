"""Strict URL parsing with one parser: that of the library that connects.

Programs disagree about the meaning of odd URLs, and an attack is a URL that the guard and the
client read differently. So odd URLs are refused, and httpx2 alone reads the rest.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, Literal, cast

import httpx2

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress.addresses import Address
from coatcheck.settings.egress_allow import looks_numeric

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
