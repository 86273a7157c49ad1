"""Randomly mutated URLs: for those that pass the guard, every parser finds the same host."""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from urllib.parse import urlsplit

import httpx2

from chaos.fuzz.mutations import mutated
from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.egress.urls import Address, is_public
from tests.budget import chance, times
from tests.egress.corpus import FORBIDDEN_ADDRESSES, FORBIDDEN_URLS, PLAIN_URLS

TRIED = 6_000
PUBLIC = "93.184.215.14"
WORDS = [b"@", b"#", b"\\", b"%00", b"%2e", b"..", b"::", b"[", b"]", b":443", b"0x7f", b"127.1",
         b"//", b"\xe3\x80\x82", b"\xef\xbc\x8e", b"localhost", b".internal",
         b"\t", b"?"]  # fmt: skip


class Resolver:
    """Returns a public address for every name, and records the names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, org: str, timeout: float | None) -> list[Address]:
        self.asked.append(host)
        return [ipaddress.ip_address(PUBLIC)]


def corpus() -> list[bytes]:
    addresses = [
        f"https://[{address}]/" if ":" in address else f"https://{address}/"
        for address, _ in FORBIDDEN_ADDRESSES
    ]
    urls = [*addresses, *(url for url, _ in FORBIDDEN_URLS), *PLAIN_URLS, *PLAIN_URLS]
    return [url.encode() for url in urls if url]


def as_old_resolvers_read(host: str) -> Address | None:
    """The address of ``host`` for parsers with octal, hexadecimal and short spellings."""
    try:
        return ipaddress.ip_address(socket.inet_aton(host))
    except (OSError, UnicodeError, ValueError):
        return None


async def refused(url: str, resolver: Resolver) -> str | None:
    """The guard's reason to refuse it, if any."""
    try:
        await Guard(resolver=resolver).check_url(url)
    except UrlForbidden as refusal:
        return str(refusal)
    return None


async def test_what_passes_is_a_public_address_or_a_plain_name() -> None:
    rng, seeds = chance("urls"), corpus()
    told = Counter[str]()
    for number in range(TRIED * times()):
        url = mutated(rng, rng.choice(seeds), seeds, WORDS).decode("utf-8", "replace")
        resolver = Resolver()
        refusal = await refused(url, resolver)
        told["let pass" if refusal is None else "refused"] += 1
        if refusal is not None:
            assert refusal.isprintable(), (number, url)
            continue
        read = httpx2.URL(url)
        host = read.raw_host.decode("ascii")
        other = urlsplit(url)
        assert read.scheme == other.scheme == "https", (number, url)
        assert other.username is other.password is None, (number, url)
        assert (read.port or 443) == (other.port or 443), (number, url)
        assert other.hostname is not None, (number, url)
        if other.hostname.isascii():
            assert other.hostname == host, (number, url)
        old = as_old_resolvers_read(host)
        if resolver.asked:
            assert resolver.asked == [host], (number, url)
            assert old is None, (number, url)
            assert "." in host, (number, url)
        else:
            assert is_public(ipaddress.ip_address(host)), (number, url)
            assert old in (None, ipaddress.ip_address(host)), (number, url)
    print(dict(told))
    assert min(told["let pass"], told["refused"]) > 0, "only one of the two was tried"
