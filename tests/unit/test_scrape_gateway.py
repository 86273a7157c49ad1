"""How COATCHECK_SCRAPE_GATEWAY is read."""

from __future__ import annotations

import pytest

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.settings import Settings
from coatcheck.settings.parsers import SettingRefused
from coatcheck.settings.targets import parse_gateway


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "direct"),
        ("http://proxy:3128", "proxy"),
        ("http://proxy:3128/", "proxy"),
        ("http://user:p%40ss@10.0.0.1:8080", "proxy"),
        ("http://[fd00::1]:8080", "proxy"),
        ("https://render.example.com/?key=k&url={url}", "template"),
        ("http://10.0.0.1:9000/{url}", "template"),
    ],
)
def test_what_is_a_gateway(text: str, kind: str) -> None:
    assert parse_gateway(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "proxy:3128",
        "http://proxy",
        "http://proxy:0x10",
        "http://proxy:99999",
        "https://proxy:3128",
        "socks5://proxy:1080",
        "http://proxy:3128/path",
        "http://proxy:3128?x=y",
        "http://:3128",
        "http://pro xy:3128",
        "{url}",
        "ftp://render.example.com/{url}",
        "https://{url}/",
        "https://render.example.com/{url}/{url}",
        "https://render.example.com/{URL}",
        "https://render.example.com/{url}#{url}",
        "https://render.example.com/#{url}",
        "https://user:secret@render.example.com/{url}",
    ],
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(SettingRefused):
        parse_gateway(text)


def test_a_page_is_put_into_a_template_percent_encoded() -> None:
    gateway = parse_gateway("https://render.example.com/?url={url}&full=1")
    assert gateway.address_of("https://a.example/b?c=d&e#f") == (
        "https://render.example.com/?url=https%3A%2F%2Fa.example%2Fb%3Fc%3Dd%26e%23f&full=1"
    )


def test_a_wrong_one_stops_the_start_and_is_not_quoted() -> None:
    environ = {
        "COATCHECK_DATABASE_URL": "postgresql://h/d",
        "COATCHECK_SCRAPE_GATEWAY": "http://user:canary@proxy/",
    }
    with pytest.raises(SettingsInvalid, match="COATCHECK_SCRAPE_GATEWAY") as refused:
        Settings.from_environment(environ)
    assert "canary" not in str(refused.value)


def test_credentials_are_not_shown() -> None:
    settings = Settings(
        database_url="", scrape_gateway=parse_gateway("http://user:canary@proxy:3128")
    )
    assert "canary" not in repr(settings)
    assert "canary" not in repr(settings.scrape_gateway)
