"""Signing in as a browser does, without one."""

from __future__ import annotations

import re
from functools import cache

import httpx2

from coatcheck.tls import trusted_authorities

TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
SESSION = "coatcheck_session"


def visiting(base_url: str | httpx2.URL) -> httpx2.AsyncClient:
    """A client without a credential, which keeps cookies and follows no redirect."""
    return httpx2.AsyncClient(
        base_url=base_url,
        trust_env=False,
        timeout=60,
        verify=trusted_authorities(trust_env=False),
    )


def token_in(html: str) -> str:
    """The token of the forms on a page."""
    found = TOKEN.search(html)
    assert found is not None, "the page has no form with a token"
    return found[1]


async def sign_in(client: httpx2.AsyncClient, credential: str, next_: str = "") -> httpx2.Response:
    """Send the form of the sign-in page; the client keeps the cookies."""
    shown = await client.get("/ui/sign-in")
    fields = {"csrf": token_in(shown.text), "credential": credential, "next": next_}
    return await client.post("/ui/sign-in", data=fields)


@cache
def _cookies() -> dict[tuple[str, str], str]:
    return {}


async def session_cookie(base_url: str, key: str) -> dict[str, str]:
    """The cookie of a session with ``key``, for a browser. Made once a key."""
    known = _cookies()
    if (base_url, key) not in known:
        async with visiting(base_url) as client:
            await sign_in(client, key)
            known[base_url, key] = client.cookies[SESSION]
    host = httpx2.URL(base_url).host
    return {"name": SESSION, "value": known[base_url, key], "domain": host, "path": "/ui"}
