"""The cookies of the dashboard, where it is served over https and where it is not."""

from __future__ import annotations

import httpx2
import pytest

from coatcheck import Settings
from coatcheck.dashboard import pages
from coatcheck.dashboard.site import Site
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.response import Receive, Scope, Send
from tests.browser.signing_in import token_in

ME = (
    b'{"org_id": "acme", "kind": "key", "user": "ada", "key_id": "k", "scopes": ["read"],'
    b' "operator": false}'
)


async def api(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": ME})


async def admit(*_: object) -> tuple[()]:
    return ()


@pytest.mark.parametrize(
    ("public_url", "is_secure"),
    [("https://jobs.example", True), ("http://127.0.0.1:8080", False), ("", False)],
)
async def test_cookies_are_for_https_only_where_it_is_served_so(
    public_url: str, is_secure: bool
) -> None:
    settings = Settings(database_url="", key_pepper="p" * 32, public_url=public_url)
    site = Site(settings, ServerDraining(), api)
    app = Dispatcher(pages.sign_in_routes(site), admit)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://inside"
    ) as client:
        shown = await client.get("/ui/sign-in")
        entered = await client.post(
            "/ui/sign-in",
            data={"csrf": token_in(shown.text), "credential": "cck_1_2"},
            headers={"Cookie": shown.headers["set-cookie"].partition(";")[0]},
        )
    assert entered.status_code == 303
    cookies = [*shown.headers.get_list("set-cookie"), *entered.headers.get_list("set-cookie")]
    assert len(cookies) == 3
    for cookie in cookies:
        attributes = cookie.split("; ")[1:]
        assert ("Secure" in attributes) == is_secure
        assert {"HttpOnly", "SameSite=Lax"} <= set(attributes)
        assert next(each for each in attributes if each.startswith("Path=/ui"))


async def test_a_form_may_come_from_the_public_address_of_a_deployment_behind_a_proxy() -> None:
    settings = Settings(database_url="", key_pepper="p" * 32, public_url="https://jobs.example")
    app = Dispatcher(pages.sign_in_routes(Site(settings, ServerDraining(), api)), admit)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://inside"
    ) as client:
        shown = await client.get("/ui/sign-in")
        cookie = {"Cookie": shown.headers["set-cookie"].partition(";")[0]}
        fields = {"csrf": token_in(shown.text), "credential": "cck_1_2"}
        for origin, status in (
            ("https://jobs.example", 303),
            ("http://inside", 303),
            ("https://jobs.example.evil", 403),
            ("https://evil", 403),
        ):
            answer = await client.post(
                "/ui/sign-in", data=fields, headers={**cookie, "Origin": origin}
            )
            assert answer.status_code == status, origin


async def test_the_form_to_sign_in_has_eight_kibibytes_at_most() -> None:
    settings = Settings(database_url="", key_pepper="p" * 32)
    app = Dispatcher(pages.sign_in_routes(Site(settings, ServerDraining(), api)), admit)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://inside"
    ) as client:
        for size, status in ((8_192, 403), (8_193, 413)):
            answer = await client.post("/ui/sign-in", content=b"a" * size, headers=form)
            assert answer.status_code == status
