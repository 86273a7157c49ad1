"""What the guide to JWTs shows is what the product takes."""

from __future__ import annotations

from typing import Any

import pytest

from coatcheck.domain.tenants import USER_SCOPES, Principal
from coatcheck.http.auth.tokens import TokenCheck
from coatcheck.settings import Settings
from tests.markdown import Page, pages


@pytest.fixture
def guide() -> Page:
    (page,) = [page for page in pages("docs/how-to") if page.path.stem == "use-jwts"]
    return page


async def test_the_token_that_is_signed_there_is_taken(guide: Page) -> None:
    [program] = guide.blocks("python")
    made: dict[str, Any] = {}
    exec(program.text, made)
    settings = Settings(
        database_url="unused",
        jwt_secret="the secret, of 32 characters or more",
        jwt_issuer="https://shop.example",
        jwt_audience="coatcheck",
    )
    checked = await TokenCheck(settings.token_issuers).check(made["token"].encode())
    assert checked.principal == Principal("acme", "user", "user:ada", USER_SCOPES, user="ada")


def test_the_list_of_issuers_there_is_a_setting_that_works(guide: Page) -> None:
    [listed] = guide.blocks("json")
    settings = Settings.from_environment(
        {"COATCHECK_DATABASE_URL": "postgresql://x", "COATCHECK_JWT_ISSUERS": listed.text}
    )
    provider, robots = settings.token_issuers
    assert (provider.algorithms, provider.org_claim, provider.kind) == (
        ("RS256",),
        "tenant",
        "user",
    )
    assert (robots.algorithms, robots.org_claim, robots.kind) == (("HS256",), "org", "service")
