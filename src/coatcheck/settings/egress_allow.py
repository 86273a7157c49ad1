"""Parses COATCHECK_EGRESS_ALLOW: hosts and networks that may be called although they are not
public."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from coatcheck.settings.parsers import Network, SettingRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORT_MAX: Final = 65_535
_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.IGNORECASE)
_NAME_CHARACTERS_MAX: Final = 253
_BRACKETED: Final = re.compile(r"\[([0-9a-fA-F:.]+)\](?::([0-9]{1,5}))?")
_WITH_PORT: Final = re.compile(r"([^:]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class AllowRule:
    """One entry: a host name or a network; ``port`` None means every port."""

    name: str | None
    network: Network | None
    port: int | None

    def allows_name(self, name: str, port: int) -> bool:
        """Whether a host of this name, in lower case, may be called whatever its addresses."""
        return self.name == name and self.port in (None, port)

    def allows_address(self, address: Address, port: int) -> bool:
        return self.network is not None and address in self.network and self.port in (None, port)


def parse_allow(text: str) -> tuple[AllowRule, ...]:
    """Parse a comma-separated list of host, host:port, address, [IPv6]:port or CIDR."""
    return tuple(_rule(entry.strip()) for entry in text.split(",") if entry.strip())


def _rule(entry: str) -> AllowRule:
    host, port = _without_port(entry)
    if port is not None and not 1 <= port <= _PORT_MAX:
        raise SettingRefused
    try:
        return AllowRule(None, ipaddress.ip_network(host), port)
    except ValueError:
        pass  # neither an address nor a network, so it must be a name
    if not _NAME.fullmatch(host) or len(host) > _NAME_CHARACTERS_MAX or looks_numeric(host):
        raise SettingRefused
    return AllowRule(host.lower(), None, port)


def _without_port(entry: str) -> tuple[str, int | None]:
    bracketed = _BRACKETED.fullmatch(entry)
    if bracketed:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    with_port = _WITH_PORT.fullmatch(entry)
    if with_port:
        return with_port[1], int(with_port[2])
    return entry, None


def looks_numeric(host: str) -> bool:
    """Whether resolvers may read this as an IPv4 address: 127.1, 0x7f.1, 2130706433."""
    last = host.rpartition(".")[2]
    return last.isdigit() or last.lower().startswith("0x")
