"""Decides whether an IP address is public: in an allowed range, and in no special one within it.

``ipaddress.is_global`` does not suffice: Python 3.11 accepts NAT64, 6to4 and IPv4-compatible forms
of private addresses, site-local and multicast addresses, and the address at which Azure serves a
machine its secrets. Here an address is public only if it lies in a range of internet unicast
addresses and in none that IANA reserved.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

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
