"""The egress guard judges every address, name and URL of the corpus right."""

from __future__ import annotations

import ipaddress

import pytest

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.egress.urls import is_public
from tests.egress.corpus import FORBIDDEN_ADDRESSES, FORBIDDEN_URLS, PLAIN_URLS, PUBLIC_ADDRESSES
from tests.egress.names import Names, every_name_is_public


def as_url(address: str) -> str:
    return f"https://[{address}]/" if ":" in address else f"https://{address}/"


def test_the_corpus_has_at_least_150_addresses_and_names_none_of_them_twice() -> None:
    refused = [entry for entry, _ in [*FORBIDDEN_ADDRESSES, *FORBIDDEN_URLS]]
    assert len(refused) >= 150
    assert len(set(refused)) == len(refused)


@pytest.mark.parametrize(("address", "what"), FORBIDDEN_ADDRESSES)
async def test_a_special_address_is_refused_as_itself_and_behind_a_name(
    address: str, what: str
) -> None:
    guard = Guard(resolver=Names(example__com=[[address]]))

    assert not is_public(ipaddress.ip_address(address)), what
    for url in (as_url(address), "https://example.com/"):
        with pytest.raises(UrlForbidden, match="not public") as refused:
            await guard.check_url(url)
        assert address not in str(refused.value)


@pytest.mark.parametrize(("address", "what"), FORBIDDEN_ADDRESSES)
async def test_one_special_address_among_public_ones_is_enough(address: str, what: str) -> None:
    for answer in (["8.8.8.8", address], [address, "8.8.8.8"]):
        guard = Guard(resolver=Names(example__com=[answer]))
        with pytest.raises(UrlForbidden, match="not public"):
            await guard.check_url("https://example.com/")


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
async def test_a_public_address_is_allowed_as_itself_and_behind_a_name(address: str) -> None:
    guard = Guard(resolver=Names(example__com=[[address]]))

    assert is_public(ipaddress.ip_address(address))
    await guard.check_url(as_url(address))
    await guard.check_url("https://example.com/")


@pytest.mark.parametrize(("url", "what"), FORBIDDEN_URLS)
async def test_an_odd_url_is_refused_even_if_every_name_were_public(url: str, what: str) -> None:
    with pytest.raises(UrlForbidden):
        await Guard(resolver=every_name_is_public).check_url(url)


@pytest.mark.parametrize("url", PLAIN_URLS)
async def test_a_plain_url_is_allowed(url: str) -> None:
    await Guard(resolver=every_name_is_public).check_url(url)


async def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(UrlForbidden, match="has no address"):
        await Guard(resolver=Names()).check_url("https://nowhere.example.com/")


async def test_a_name_is_asked_for_once_a_check() -> None:
    names = Names(example__com=[["8.8.8.8", "2606:4700:4700::1111"]])
    await Guard(resolver=names).check_url("https://example.com/")
    assert names.asked == ["example.com"]
