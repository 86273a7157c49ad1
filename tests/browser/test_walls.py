"""What keeps others out of a visitor's pages: the session, its token, its headers. No browser is
needed to try most of them; a browser would be the first to obey."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import expect

import coatcheck.dashboard
from coatcheck.domain.tenants import RateLimit, Scope
from tests.browser.chromium import Complaints
from tests.browser.conftest import OpenPage
from tests.browser.errands import JOBS, end_of, ended, waiting_at
from tests.browser.errands_service import gates
from tests.browser.signing_in import SESSION, sign_in, token_in, visiting
from tests.deployment import Deployment
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER = Path(coatcheck.dashboard.__file__).parent
OVERVIEW = "/ui/"
LOADED_AS_CODE = """async ([script, style]) => {
    const violated = [];
    document.addEventListener(
        "securitypolicyviolation", event => violated.push(event.effectiveDirective));
    const loads = (tag, attributes) => new Promise(resolve => {
        const element = Object.assign(document.createElement(tag), attributes);
        element.onload = () => resolve(true);
        element.onerror = () => resolve(false);
        document.head.append(element);
    });
    const loaded = await Promise.all(
        [loads("script", {src: script}), loads("link", {rel: "stylesheet", href: style})]);
    return {loaded, violated};
}"""
"""Tries to load a script and a style; whether each came, and which rules forbade it."""
GONE = "event: gone\ndata: \n\n"


async def test_every_answer_forbids_framing_sniffing_keeping_and_foreign_content(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    shown = [await visitor.get("/ui/sign-in"), await visitor.get(OVERVIEW)]
    await sign_in(visitor, deployment.key)
    shown += [await visitor.get(OVERVIEW), await visitor.get("/ui/nowhere")]
    assert [answer.status_code for answer in shown] == [200, 303, 200, 404]
    for answer in shown:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src ")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


async def test_scripts_and_styles_are_allowed_by_a_number_that_each_page_makes_anew(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    await sign_in(visitor, deployment.key)
    pages = [
        await visitor.get(path) for path in (OVERVIEW, OVERVIEW, "/ui/jobs", "/ui/nowhere", "/docs")
    ]
    nonces = []
    for page in pages:
        policy = page.headers["content-security-policy"]
        (nonce,) = re.findall(r"script-src 'nonce-([^']+)';", policy)
        loading = re.findall(r"<script[^>]*>", page.text)
        assert len(loading) >= 2
        assert all(f'nonce="{nonce}"' in tag for tag in loading)
        assert page.headers["cache-control"] == "no-store"
        nonces.append(nonce)
    assert len(set(nonces)) == len(pages)
    part = await visitor.get("/ui/jobs", headers={"HX-Request": "true"})
    assert "script-src 'none'; style-src 'none'" in part.headers["content-security-policy"]


@pytest.mark.parametrize(
    "destination", ["script", "style", "worker", "sharedworker", "serviceworker", "object", "embed"]
)
async def test_what_a_tenant_stored_is_not_served_as_code(
    deployment: Deployment, visitor: httpx2.AsyncClient, destination: str
) -> None:
    job = await ended(deployment, "/script")
    files = (await deployment.http.get(f"{JOBS}/{job['id']}/artifacts")).json()["items"]
    key = {"Authorization": f"Bearer {deployment.key}"}
    as_code = {"Sec-Fetch-Dest": destination}
    for file in files:
        for url, headers in ((file["signed_url"], {}), (file["url"], key)):
            refused = await visitor.get(url, headers={**headers, **as_code})
            assert (refused.status_code, refused.json()["code"]) == (403, "not_served_as_code")
            for wanted in ("empty", "document", "image"):
                served = await visitor.get(url, headers={**headers, "Sec-Fetch-Dest": wanted})
                assert served.status_code == 200
                assert served.headers["content-security-policy"] == "default-src 'none'; sandbox"
                assert served.headers["x-content-type-options"] == "nosniff"
    page = (await visitor.get("/ui/sign-in")).text
    for address in re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', page):
        assert (await visitor.get(address, headers=as_code)).status_code == 200


async def test_a_page_runs_no_script_and_takes_no_style_of_a_tenants(
    deployment: Deployment, open_page: OpenPage, complaints: Complaints
) -> None:
    """Though both are of its own origin; and though, as in old browsers, nobody says what for."""
    for part in ("Content Security Policy", "net::ERR", "403", "favicon.ico"):
        complaints.expect(part)
    job = await ended(deployment, "/script")
    files = (await deployment.http.get(f"{JOBS}/{job['id']}/artifacts")).json()["items"]
    urls = {file["name"]: file["signed_url"] for file in files}
    for path in (OVERVIEW, "/docs"):
        page = await open_page(path)
        refused = await page.evaluate(LOADED_AS_CODE, [urls["pwn.js"], urls["pwn.css"]])
        assert refused["loaded"] == [False, False], path
        assert "script-src-elem" in refused["violated"], path
        assert await page.evaluate("window.pwned") is None


async def test_the_docs_page_still_shows_the_api(
    open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.expect("favicon.ico")
    page = await open_page("/docs")
    await expect(page.get_by_role("heading", name="Coatcheck")).to_be_visible()
    await expect(page.locator(".opblock").first).to_be_visible()


async def test_files_are_kept_for_good_under_an_address_that_changes_with_them(
    visitor: httpx2.AsyncClient,
) -> None:
    page = (await visitor.get("/ui/sign-in")).text
    addresses = re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', page)
    assert len(addresses) >= 5
    for address in addresses:
        answer = await visitor.get(address)
        assert answer.status_code == 200
        assert answer.headers["content-encoding"] == "gzip"
        assert "immutable" in answer.headers["cache-control"]
    plain = await visitor.get(addresses[0], headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    older = await visitor.get("/ui/static/0123456789abcdef/coatcheck.css")
    assert (older.status_code, older.headers["cache-control"]) == (200, "no-store")
    assert (await visitor.get("/ui/static/0123456789abcdef/secrets.css")).status_code == 404


async def test_no_session_or_one_that_we_did_not_make_leads_to_the_sign_in_page(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    await sign_in(visitor, deployment.key)
    sealed = visitor.cookies[SESSION]
    flipped = sealed[:40] + ("A" if sealed[40] != "A" else "B") + sealed[41:]
    visitor.cookies.clear()
    for value in ("", "nonsense", "ä", flipped, sealed[:-4], sealed[:10]):
        cookie = {"Cookie": f"{SESSION}={value}".encode()} if value else {}
        answer = await visitor.get("/ui/?minutes=360", headers=cookie)
        assert answer.status_code == 303, value
        assert answer.headers["location"] == "/ui/sign-in?next=%2Fui%2F%3Fminutes%3D360"
    answer = await visitor.get(OVERVIEW, headers={"Cookie": f"{SESSION}={sealed}"})
    assert answer.status_code == 200


async def test_a_form_without_its_token_or_from_another_site_does_nothing(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    await sign_in(visitor, deployment.key)
    first = token_in((await visitor.get(OVERVIEW)).text)
    visitor.cookies.clear()
    await sign_in(visitor, deployment.key)
    token = token_in((await visitor.get(OVERVIEW)).text)
    assert first != token

    good = {"csrf": token}
    host = {"Origin": str(visitor.base_url).rstrip("/")}
    for fields, headers in (
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": first}, {}),
        ({"csrf": token + "A"}, {}),
        (good, {"Sec-Fetch-Site": "cross-site"}),
        (good, {"Sec-Fetch-Site": "same-site"}),
        (good, {"Origin": "https://elsewhere.example"}),
        (good, {"Origin": "null"}),
        (good, {"Sec-Fetch-Site": "cross-site", **host}),
    ):
        answer = await visitor.post("/ui/sign-out", data=fields, headers=headers)
        assert answer.status_code == 403, (fields, headers)
        assert "set-cookie" not in answer.headers
    assert (await visitor.get(OVERVIEW)).status_code == 200

    by_header = {"X-CSRF-Token": token, "Sec-Fetch-Site": "same-origin", **host}
    answer = await visitor.post("/ui/sign-out", headers=by_header)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in")
    assert (await visitor.get(OVERVIEW)).status_code == 303


async def test_a_page_that_looks_at_another_organisation_than_the_session_does_nothing_there(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    """Two windows: the organisation was switched in the other one."""
    await deployment.create_org("switched-to")
    await sign_in(visitor, deployment.key)
    page = (await visitor.get(OVERVIEW)).text
    before = token_in(page)
    stream = re.findall(r'sse-connect="([^"]+)"', page)[0].replace("&amp;", "&")
    await visitor.post("/ui/orgs", data={"csrf": before, "org": "switched-to"})
    made = await visitor.post("/ui/keys", data={"csrf": before, "name": "for whom?"})
    assert (made.status_code, "csrf_refused" in made.text) == (403, True)
    by_htmx = {"HX-Request": "true", "X-CSRF-Token": before}
    part = await visitor.get("/ui/jobs", headers=by_htmx)
    assert (part.headers["hx-refresh"], part.content) == ("true", b"")
    assert (await visitor.get(stream)).text == GONE
    now = {**by_htmx, "X-CSRF-Token": token_in((await visitor.get(OVERVIEW)).text)}
    assert "hx-refresh" not in (await visitor.get("/ui/jobs", headers=now)).headers


async def test_the_form_to_sign_in_is_good_in_each_of_two_windows(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    first = await visitor.get("/ui/sign-in")
    await visitor.get("/ui/sign-in")
    fields = {"csrf": token_in(first.text), "credential": deployment.key}
    assert (await visitor.post("/ui/sign-in", data=fields)).status_code == 303


async def test_nobody_is_signed_in_by_a_form_of_another_site(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    shown = await visitor.get("/ui/sign-in")
    fields = {"csrf": token_in(shown.text), "credential": deployment.key}
    async with visiting(visitor.base_url) as victim:
        await victim.get("/ui/sign-in")
        assert (await victim.post("/ui/sign-in", data=fields)).status_code == 403
        assert SESSION not in victim.cookies
    sent_from_elsewhere = {"Sec-Fetch-Site": "cross-site"}
    answer = await visitor.post("/ui/sign-in", data=fields, headers=sent_from_elsewhere)
    assert answer.status_code == 403


async def test_signing_in_leads_to_pages_of_ours_only(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    for wanted, found in (
        ("/ui/jobs?state=failed", "/ui/jobs?state=failed"),
        ("https://elsewhere.example/ui/", "/ui/"),
        ("//elsewhere.example/ui/", "/ui/"),
        ("/ui//elsewhere.example", "/ui/"),
        ("/ui/\\elsewhere.example", "/ui/"),
        ("/ui/\r\nSet-Cookie: a=b", "/ui/"),
        ("/docs", "/ui/"),
        ("/ui/sign-in?next=/ui/", "/ui/"),
    ):
        visitor.cookies.clear()
        answer = await sign_in(visitor, deployment.key, wanted)
        assert (answer.status_code, answer.headers["location"]) == (303, found), wanted


async def test_a_credential_that_does_not_count_or_does_not_fit_is_refused_with_its_reason(
    visitor: httpx2.AsyncClient,
) -> None:
    refused = await sign_in(visitor, "cck_nobody_nothing")
    assert refused.status_code == 422
    assert "This API key or token is not valid" in refused.text
    too_long = await sign_in(visitor, "e" * 3_000)
    assert too_long.status_code == 422
    assert "3000 bytes" in too_long.text
    assert SESSION not in visitor.cookies


async def test_a_session_ends_with_its_key(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    key = await deployment.create_key()
    await sign_in(visitor, key)
    assert (await visitor.get(OVERVIEW)).status_code == 200
    await deployment.revoke_key(key)

    async def is_out() -> bool:
        answer = await visitor.get(OVERVIEW)
        return answer.status_code == 303 and answer.headers["location"] == "/ui/sign-in"

    await eventually_async(is_out, "the session of a revoked key has ended")
    assert SESSION not in visitor.cookies


async def test_pages_are_counted_and_refused_as_the_api_is(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    limited = await deployment.create_key(rate=RateLimit(2, 3600))
    await sign_in(visitor, limited)  # one
    assert (await visitor.get(OVERVIEW)).status_code == 200  # two
    answer = await visitor.get(OVERVIEW)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert "Too many requests" in answer.text

    visitor.cookies.clear()
    await sign_in(visitor, await deployment.create_key(scopes=[Scope.SUBMIT]))
    unread = await visitor.get(OVERVIEW)
    assert unread.status_code == 403
    assert "missing_scope" in unread.text
    assert 'href="/ui/jobs"' not in unread.text


async def test_an_htmx_request_is_told_of_its_problem_and_of_the_end_of_its_session(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    by_htmx = {"HX-Request": "true", "HX-Current-URL": f"{visitor.base_url}/ui/jobs?lane=bulk"}
    answer = await visitor.get(OVERVIEW, headers=by_htmx)
    assert answer.headers["hx-redirect"] == "/ui/sign-in?next=%2Fui%2Fjobs%3Flane%3Dbulk"
    await sign_in(visitor, deployment.key)
    answer = await visitor.post("/ui/sign-out", headers=by_htmx)
    assert answer.status_code == 403
    assert answer.text.startswith('<p class="notice is-error"')


async def test_what_a_page_asks_of_the_api_carries_the_pages_request_id(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    await sign_in(visitor, await deployment.create_key(scopes=[Scope.SUBMIT]))
    answer = await visitor.get(OVERVIEW, headers={"X-Request-Id": "look-for-me"})
    assert answer.headers["x-request-id"] == "look-for-me"
    assert "look-for-me" in answer.text


async def test_a_pages_stream_ends_with_its_session_and_with_its_server(
    deployment: Deployment,
) -> None:
    replica = await deployment.start_server()
    key = await deployment.create_key()
    async with visiting(replica.http.base_url) as client:
        await sign_in(client, key)
        await deployment.revoke_key(key)
        async with client.stream("GET", "/ui/live") as stream:
            events = "".join([text async for text in stream.aiter_text()])
        assert events.endswith(GONE)
        as_a_stream = {"Accept": "text/event-stream"}
        for path in ("/ui/live", "/ui/jobs/01JD00000000000000000000AB/live"):
            told = await client.get(path, headers=as_a_stream)
            assert (told.status_code, told.text) == (200, GONE)

        client.cookies.clear()
        await sign_in(client, deployment.key)
        async with client.stream("GET", "/ui/live") as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            await replica.stop()
            async for _ in stream.aiter_bytes():
                pass


async def test_a_jobs_stream_tells_nothing_more_once_its_key_is_revoked(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    job_id = await waiting_at(deployment, "revoked")
    key = await deployment.create_key()
    await sign_in(visitor, key)
    api = {"Authorization": f"Bearer {key}"}
    streams = [(f"/ui/jobs/{job_id}/live", {}), (f"{JOBS}/{job_id}/events", api)]
    for path, headers in streams:
        assert (await visitor.head(path, headers=headers)).status_code == 200

    async def is_out() -> bool:
        return (await visitor.get("/api/v1/me", headers=api)).status_code == 401

    async with AsyncExitStack() as opened:
        followed = [
            (
                await opened.enter_async_context(visitor.stream("GET", path, headers=headers))
            ).aiter_text()
            for path, headers in streams
        ]
        told = [await until(pieces, "waiting at revoked") for pieces in followed]
        assert len(told) == 2
        await deployment.revoke_key(key)
        # The job goes on, and its streams end all the same.
        rest = ["".join([piece async for piece in pieces]) for pieces in followed]
        await eventually_async(is_out, "the key is refused")
        gates.opened["revoked"].set()
        page, events = rest
        assert page.endswith(GONE)
        assert events.endswith("event: reconnect\ndata: {}\n\n")
    assert (await end_of(deployment, job_id))["state"] == "completed"


async def until(pieces: AsyncIterator[str], words: str) -> str:
    """What a stream says up to these words."""
    told = ""
    while words not in told:
        told += await anext(pieces)
    return told


async def test_no_template_has_anything_that_the_policy_forbids_or_escaping_misses() -> None:
    forbidden = re.compile(
        r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|hx-on|javascript:|\|\s*safe\b"
        r"|autoescape|Markup|hx-vals=.js:"
    )
    templates = sorted(FOLDER.glob("templates/**/*.html"))
    assert len(templates) > 5
    for template in templates:
        assert forbidden.findall(template.read_text()) == [], template.name
    for module in FOLDER.glob("*.py"):
        assert "Markup" not in module.read_text(), module.name
