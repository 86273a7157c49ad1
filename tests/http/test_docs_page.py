"""The interactive docs need this server and nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx2

# What makes a browser ask for something: in a page, a style sheet, a script.
LOADING_ATTRIBUTES = {"src", "href", "srcset", "action", "data", "poster"}
STYLE_LOADS = re.compile(r"""(?:@import\s+|url\(\s*)["']?([^"')\s]+)""")
SCRIPT_LOADS = re.compile(
    r"""(?:fetch|importScripts|import|Worker|EventSource|WebSocket|sendBeacon)"""
    r"""\(\s*["'`]([^"'`]+)|sourceMappingURL=(\S+)"""
)
ANOTHER_HOST = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


class Loads(HTMLParser):
    """Every address that a page makes its browser load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.others: list[str] = []
        self.inline_scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        addresses = {name: value or "" for name, value in attrs if name in LOADING_ATTRIBUTES}
        self.inline_scripts += tag == "script" and "src" not in addresses
        assert not any(name.startswith("on") for name, _ in attrs)
        place = {"script": self.scripts, "link": self.styles}.get(tag, self.others)
        place += addresses.values()


async def test_the_page_loads_its_files_from_this_server(client: httpx2.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    loads = Loads(page.text)
    assert loads.styles == ["docs/swagger-ui.css"]
    assert loads.scripts == ["docs/swagger-ui-bundle.js", "docs/start.js"]
    assert loads.others == []
    assert loads.inline_scripts == 0
    for path in loads.styles:
        assert (await loaded(client, path)).headers["Content-Type"] == "text/css; charset=utf-8"
    for path in loads.scripts:
        script = await loaded(client, path)
        assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"


async def test_the_files_ask_no_other_host_for_anything(client: httpx2.AsyncClient) -> None:
    style = (await loaded(client, "docs/swagger-ui.css")).text
    addresses = STYLE_LOADS.findall(style)
    assert addresses, "the style sheet has pictures of its own"
    assert all(address.startswith("data:") for address in addresses)
    start = (await loaded(client, "docs/start.js")).text
    assert not ANOTHER_HOST.search(start)
    bundle = (await loaded(client, "docs/swagger-ui-bundle.js")).text
    for address, source_map in SCRIPT_LOADS.findall(bundle):
        assert not ANOTHER_HOST.match(address or source_map)


async def test_the_browser_is_told_to_ask_no_other_host(client: httpx2.AsyncClient) -> None:
    policy = (await client.get("/docs")).headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch("'nonce-[A-Za-z0-9_-]{20,}'", rules.pop("script-src"))
    allowed = {source for sources in rules.values() for source in sources.split()}
    assert allowed <= {"'none'", "'self'", "'unsafe-inline'", "data:"}
    assert rules["connect-src"] == "'self'"


async def test_the_page_shows_this_servers_document(client: httpx2.AsyncClient) -> None:
    start = (await loaded(client, "docs/start.js")).text
    [document] = re.findall(r'url: "([^"]+)"', start)
    shown = await client.get(f"/{document}")
    assert shown.json()["info"]["title"] == "Coatcheck"
    # Swagger UI would send the document's address to its own host to have it judged.
    assert "validatorUrl: null" in start


async def test_a_file_that_is_as_it_was_is_not_sent_again(client: httpx2.AsyncClient) -> None:
    first = await loaded(client, "docs/swagger-ui.css")
    again = await client.get(
        "/docs/swagger-ui.css", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    changed = await client.get("/docs/swagger-ui.css", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


async def test_only_the_files_of_the_page_are_served(client: httpx2.AsyncClient) -> None:
    for name in ("index.html", "..%2Fversion.py", "%2Fetc%2Fpasswd", "swagger-ui.css%20", "%FF"):
        answer = await client.get(f"/docs/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def loaded(client: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """What a browser gets that was told to load a path by the page at /docs."""
    answer = await client.get(f"/{path}")
    assert answer.status_code == 200
    assert answer.content
    return answer
