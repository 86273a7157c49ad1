"""Of an upstream's headers, none comes back that a proxy or a browser would act on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import pytest_asyncio

from coatcheck.core.upstream_calls import UpstreamAnswer, kept_headers
from coatcheck.products.gateway.submit_routes import response_headers
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, plain, upstream_server
from tests.ports import free_port
from tests.products.gateway import paths
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET: Final = "what only the proxy may read"
CANARY: Final = "/internal/secret.txt"

ACTED_ON: Final = (
    *("X-Accel-Redirect", "X-Accel-Buffering", "X-Accel-Charset", "X-Accel-Expires"),
    *("X-Accel-Limit-Rate", "X-Sendfile", "X-Sendfile2", "X-LIGHTTPD-send-file"),
    *("X-LIGHTTPD-send-tempfile", "X-LiteSpeed-Location", "X-Reproxy-URL", "X-AppEngine-BlobKey"),
    *("X-Envoy-Immediate-Health-Check-Fail", "Surrogate-Control", "CDN-Cache-Control"),
    *("Cache-Control", "Expires", "Age", "Vary", "Pragma", "Set-Cookie", "Refresh", "Link"),
    *("Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins", "Expect-CT"),
    *("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Timing-Allow-Origin"),
    *("Service-Worker-Allowed", "SourceMap", "X-SourceMap", "NEL", "Report-To", "Alt-Svc"),
    *("Reporting-Endpoints", "Content-Security-Policy", "Content-Security-Policy-Report-Only"),
    *("Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Permissions-Policy"),
    *("X-Frame-Options", "X-DNS-Prefetch-Control", "X-UA-Compatible", "Origin-Agent-Cluster"),
    *("WWW-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Upgrade", "Keep-Alive"),
    *(
        "Via",
        "Server",
        "X-Request-Id",
        "X-Coatcheck-Job-Id",
        "X-Whatever",
        "X-Content-Type-Options",
    ),
)
KEPT: Final = {
    "content-type": "text/plain",
    "content-language": "fr",
    "content-disposition": 'attachment; filename="a.txt"',
    "etag": '"7"',
    "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT",
    "location": "/things/1",
    "retry-after": "7",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calling(shared: Deployment) -> Deployment:
    await shared.start_gateway_worker()
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def hostile(calling: Deployment) -> AsyncIterator[UpstreamServer]:
    headers = (*KEPT.items(), *((name, CANARY) for name in ACTED_ON))
    async with upstream_server(plain(b"a page", headers=headers)) as server:
        target = {"type": "http", "url": server.url(), "headers": {}}
        endpoint: dict[str, Any] = {
            "method": "GET",
            "path": "/page",
            "auth": "none",
            "retries": 0,
            "target": target,
        }
        document = {"versions": {"1": {"endpoints": [endpoint]}}}
        answer = await calling.http.put(paths.hosted("hostile"), json=document)
        assert answer.status_code == 200, answer.text
        yield server


async def test_nothing_that_is_acted_on_reaches_the_caller(
    calling: Deployment, hostile: UpstreamServer
) -> None:
    base = calling.http.base_url
    reader, writer = await asyncio.open_connection(base.host, base.port)
    request = (
        f"GET {paths.call('/page', 'hostile')} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    writer.write(request.encode())
    raw = await reader.read()
    writer.close()

    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"a page"
    assert CANARY.encode() not in head
    lines = [line.decode().partition(": ") for line in head.split(b"\r\n")[1:]]
    headers = {name.lower(): value for name, _, value in lines}
    assert len(headers) == len(lines), "each came once"
    assert {name: headers[name] for name in KEPT} == KEPT
    ours = {
        *("cache-control", "connection", "content-length", "content-security-policy", "date"),
        *("link", "x-content-type-options", "x-request-id"),
    }
    assert set(headers) <= ours | set(KEPT)


async def test_what_was_stored_before_is_looked_through_again() -> None:
    answer = UpstreamAnswer(200, [("x-accel-redirect", CANARY), ("etag", '"7"')])
    assert response_headers(answer)[0] == (b"etag", b'"7"')
    assert CANARY not in repr(response_headers(answer))


async def test_a_header_that_is_a_list_keeps_all_that_was_sent_of_it() -> None:
    sent = [(b"Content-Encoding", b"gzip"), (b"ETag", b"1"), (b"Content-Encoding", b"br")]
    assert kept_headers([*sent, (b"ETag", b"2")]) == [
        ("content-encoding", "gzip, br"),
        ("etag", "1"),
    ]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
async def test_behind_nginx_an_internal_file_stays_internal(
    calling: Deployment, hostile: UpstreamServer, tmp_path: Path
) -> None:
    async with (
        nginx(str(calling.http.base_url), tmp_path) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False) as anyone,
    ):
        assert (await anyone.get(CANARY)).status_code == 404
        answer = await anyone.get(paths.call("/page", "hostile"))
    assert (answer.status_code, answer.text) == (200, "a page")


@contextlib.asynccontextmanager
async def nginx(before: str, folder: Path) -> AsyncIterator[str]:
    """nginx on a port of its own before a server, with a file that only it may serve."""
    port = free_port()
    inside = folder / "internal"
    inside.mkdir()
    (inside / "secret.txt").write_text(SECRET)
    account = "user root;" if os.geteuid() == 0 else ""  # whose folder this is
    configuration = folder / "nginx.conf"
    configuration.write_text(f"""
daemon off;
{account}
pid {folder}/nginx.pid;
error_log stderr;
worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {before.rstrip("/")}; }}
        location /internal/ {{ internal; alias {inside}/; }}
    }}
}}
""")
    process = await asyncio.create_subprocess_exec(
        *("nginx", "-p", str(folder), "-e", "stderr", "-c", str(configuration)),
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def listens() -> bool:
        assert process.returncode is None, "nginx has ended"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
        return False

    try:
        await eventually_async(listens, "nginx listens")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()
