"""Where webhooks may be sent on a developer's machine, and that nothing else may."""

from __future__ import annotations

import pytest

from coatcheck import Settings
from coatcheck.cli.up import let_webhooks_in
from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard, receiver_guard

HERE = ["http://127.0.0.1:9000/", "http://127.8.8.8/", "http://[::1]:9000/", "http://localhost/"]
ELSEWHERE = ["http://10.0.0.1/", "https://192.168.0.1/", "https://[fe80::1]/", "http://8.8.8.8/"]


def settings(**fields: object) -> Settings:
    return Settings(database_url="postgresql://db/x", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", HERE)
async def test_this_machine_itself_may_be_told_only_where_the_setting_says_so(url: str) -> None:
    await receiver_guard(settings(webhook_loopback=True)).check_url(url)
    with pytest.raises(UrlForbidden):
        await receiver_guard(settings()).check_url(url)
    with pytest.raises(UrlForbidden):
        await Guard(settings(webhook_loopback=True).egress_allow).check_url(url)


@pytest.mark.parametrize("url", ELSEWHERE)
async def test_it_opens_nothing_else(url: str) -> None:
    with pytest.raises(UrlForbidden):
        await receiver_guard(settings(webhook_loopback=True)).check_url(url)


def test_up_lets_webhooks_in_unless_that_was_decided() -> None:
    for environment in (
        {"COATCHECK_WEBHOOK_LOOPBACK": "  "},
        {"COATCHECK_EGRESS_ALLOW": "models.corp.internal"},
    ):
        assert let_webhooks_in(environment)
        assert environment["COATCHECK_WEBHOOK_LOOPBACK"] == "on"
    for said in (
        {"COATCHECK_WEBHOOK_LOOPBACK": "off"},
        {"COATCHECK_WEBHOOK_LOOPBACK": "on"},
    ):
        before = dict(said)
        assert not let_webhooks_in(said)
        assert said == before
