"""COATCHECK_EGRESS_ALLOW: what may be called although the guard would refuse, and nothing more."""

from __future__ import annotations

import pytest

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.settings.egress_allow import parse_allow
from coatcheck.settings.parsers import SettingRefused
from tests.egress.names import Names

NAMES = {
    "localhost": [["127.0.0.1", "::1"]],
    "models.corp.internal": [["10.1.2.3"]],
    "mixed.example.com": [["10.1.2.3", "8.8.8.8"]],
    "two.example.com": [["10.1.2.3", "10.9.9.9"]],
    "example.com": [["8.8.8.8"]],
}

ALLOWED = [
    ("localhost", "http://localhost/"),
    ("localhost", "https://localhost:9000/"),
    ("LocalHost:9000", "http://localhost:9000/"),
    ("models.corp.internal", "http://models.corp.internal:22/"),
    ("127.0.0.1", "http://127.0.0.1:1/"),
    ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
    ("127.0.0.0/8", "http://127.9.9.9/"),
    ("10.0.0.0/8", "http://models.corp.internal/"),
    ("10.1.2.3", "http://models.corp.internal:8000/"),
    ("127.0.0.1, ::1", "http://localhost/"),
    ("[::1]:8080", "http://[::1]:8080/"),
    ("::1", "http://[::1]/"),
    ("fd00::/8", "http://[fd00::5]/"),
    ("a.example, 10.1.2.3 ,b.example", "http://10.1.2.3/"),
    ("10.1.2.3", "https://mixed.example.com/"),
    ("8.8.8.8", "http://example.com/"),
]

STILL_REFUSED = [
    ("localhost:9000", "http://localhost:9001/"),
    ("localhost", "http://localhost.example.com/"),
    ("127.0.0.1:8080", "http://127.0.0.1:8081/"),
    ("127.0.0.1", "http://127.0.0.2/"),
    ("127.0.0.1", "http://localhost/"),  # it also has ::1
    ("10.0.0.0/8", "https://192.168.0.1/"),
    ("10.1.2.3", "https://two.example.com/"),
    ("10.1.2.3", "http://mixed.example.com/"),  # one address is public: https there
    ("10.0.0.0/8", "http://example.com/"),
    ("10.0.0.0/8", "https://[::ffff:10.1.2.3]/"),
    ("localhost", "http://user@localhost/"),
    ("localhost", "ftp://localhost/"),
    ("127.0.0.1", "http://2130706433/"),
]


def guard(allow: str) -> Guard:
    names = {host.replace(".", "__"): answers for host, answers in NAMES.items()}
    return Guard(parse_allow(allow), resolver=Names(**names))


@pytest.mark.parametrize(("allow", "url"), ALLOWED)
async def test_what_is_listed_may_be_called(allow: str, url: str) -> None:
    await guard(allow).check_url(url)
    with pytest.raises(UrlForbidden):
        await guard("").check_url(url)


@pytest.mark.parametrize(("allow", "url"), STILL_REFUSED)
async def test_what_is_not_listed_stays_refused(allow: str, url: str) -> None:
    with pytest.raises(UrlForbidden):
        await guard(allow).check_url(url)


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost",
        "localhost:0",
        "localhost:65536",
        "localhost:port",
        "10.0.0.1/8",  # bits beyond the network: which was meant?
        "10.0.0.0/33",
        "256.1.1.1",
        "0x7f.1",
        "2130706433",
        "[::1",
        "user@host",
        "a b",
        "*",
        "*.example.com",
        "host/path",
        "-host",
        "a" * 64,
    ],
)
def test_an_entry_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingRefused):
        parse_allow(f"localhost,{text}")


def test_nothing_is_listed_by_default() -> None:
    assert parse_allow("") == parse_allow(" , ") == ()
