"""The guard's client connects to the address that was checked, and to nothing else."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx2
import pytest

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard, charged_to
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.certificates import make_authority
from tests.egress.names import Names
from tests.egress.upstream_server import Request, plain, upstream_server

PUBLIC = "93.184.215.14"


async def test_a_name_that_changes_between_check_and_connect_never_reaches_loopback() -> None:
    async with upstream_server() as inside:
        names = Names(rebinding__example__com=[[PUBLIC], ["127.0.0.1"]])
        guard = Guard(resolver=names)
        url = inside.url(scheme="https", host="rebinding.example.com")

        await guard.check_url(url)
        async with guard.client() as client:
            with pytest.raises(UrlForbidden, match="not public"):
                await client.get(url)

        assert names.asked == ["rebinding.example.com"] * 2
        assert inside.connections == 0


async def test_a_name_is_resolved_once_and_the_connection_goes_to_that_answer() -> None:
    async with upstream_server() as allowed:
        # The first answer is the one that was checked; the second would be refused.
        names = Names(flip__example__com=[["127.0.0.1"], ["10.0.0.1"]])
        guard = Guard(parse_allow("127.0.0.1"), resolver=names)
        async with guard.client() as client:
            answer = await client.get(allowed.url(host="flip.example.com"))

        assert answer.status_code == 200
        assert names.asked == ["flip.example.com"]
        assert allowed.requests[0].header("host") == f"flip.example.com:{allowed.port}"


async def test_a_connection_that_is_used_again_still_leads_where_it_was_checked_to_lead() -> None:
    async with upstream_server() as allowed:
        names = Names(flip__example__com=[["127.0.0.1"], ["10.0.0.1"]])
        guard = Guard(parse_allow("127.0.0.1"), resolver=names)
        url = allowed.url(host="flip.example.com")
        async with guard.client() as client:
            await client.get(url)
            await client.get(url)
            assert (allowed.connections, len(allowed.requests)) == (1, 2)
            assert len(names.asked) == 1

            allowed.answer = plain(headers=(("Connection", "close"),))
            await client.get(url)
            with pytest.raises(UrlForbidden):  # a new connection is a new question
                await client.get(url)

        assert (allowed.connections, len(allowed.requests)) == (1, 3)


@pytest.mark.parametrize("answer", [["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"]])
async def test_a_name_with_one_forbidden_address_is_not_connected_to_at_all(
    answer: list[str],
) -> None:
    async with upstream_server() as allowed:
        guard = Guard(parse_allow("127.0.0.1"), resolver=Names(mixed__example__com=[answer]))
        async with guard.client() as client:
            with pytest.raises(UrlForbidden):
                await client.get(allowed.url(host="mixed.example.com"))

        assert allowed.connections == 0


async def test_a_redirect_to_a_forbidden_address_is_an_answer_and_is_not_followed() -> None:
    async with upstream_server() as inside, upstream_server() as allowed:
        allowed.answer = plain(status="302 Found", headers=(("Location", inside.url()),))
        async with Guard(parse_allow(f"127.0.0.1:{allowed.port}")).client() as client:
            answer = await client.get(allowed.url())
            assert (answer.status_code, answer.headers["location"]) == (302, inside.url())
            with pytest.raises(UrlForbidden):
                await client.get(allowed.url(), follow_redirects=True)  # not even if asked to

        assert inside.connections == 0


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with upstream_server() as allowed:
        # Nobody listens on this port of the first address.
        names = Names(two__example__com=[["127.0.0.2", "127.0.0.1"]])
        async with Guard(parse_allow("127.0.0.0/8"), resolver=names).client() as client:
            answer = await client.get(allowed.url(host="two.example.com"))

        assert answer.status_code == 200


async def test_tls_asks_for_the_name_and_verifies_it_though_the_address_is_connected_to(
    tmp_path: Path,
) -> None:
    authority = make_authority(tmp_path)
    tls = authority.server_context("upstream.example.com")
    names = Names(upstream__example__com=[["127.0.0.1"]], other__example__com=[["127.0.0.1"]])
    guard = Guard(parse_allow("127.0.0.1"), resolver=names)
    trusting = ssl.create_default_context(cafile=authority.certificate)
    async with upstream_server(tls=tls) as server, guard.client(verify=trusting) as client:
        answer = await client.get(server.url(scheme="https", host="upstream.example.com"))
        assert answer.status_code == 200
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client.get(server.url(scheme="https", host="other.example.com"))

        assert server.server_names == ["upstream.example.com", "other.example.com"]


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    tls = make_authority(tmp_path).server_context("upstream.example.com")
    names = Names(upstream__example__com=[["127.0.0.1"]])
    guard = Guard(parse_allow("127.0.0.1"), resolver=names)
    async with upstream_server(tls=tls) as server, guard.client() as client:
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client.get(server.url(scheme="https", host="upstream.example.com"))

        assert server.requests == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream_server() as proxy, upstream_server() as allowed:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url())
            monkeypatch.setenv(variable.lower(), proxy.url())
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with Guard(parse_allow(f"127.0.0.1:{allowed.port}")).client() as client:
            await client.get(allowed.url())
            with pytest.raises(UrlForbidden):
                await client.get("https://10.0.0.1/")

        assert (proxy.connections, allowed.connections) == (0, 1)


async def test_a_cookie_of_one_answer_is_not_sent_with_the_next_request() -> None:
    async with upstream_server() as allowed:
        allowed.answer = plain(headers=(("Set-Cookie", "session=tenant-a; Path=/"),))
        async with Guard(parse_allow("127.0.0.1")).client() as client:
            await client.get(allowed.url())
            await client.get(allowed.url())

        assert [request.header("cookie") for request in allowed.requests] == [None, None]


@pytest.mark.parametrize(
    "url",
    ["http://8.8.8.8/", "https://0x7f.1/", "https://user:secret@8.8.8.8/", "ftp://8.8.8.8/"],
)
async def test_the_client_refuses_what_a_check_would_have_refused(url: str) -> None:
    async with Guard().client() as client:
        with pytest.raises((UrlForbidden, httpx2.UnsupportedProtocol)):
            await client.get(url)


async def test_a_name_that_nobody_knows_is_a_failed_connection() -> None:
    async with Guard(resolver=Names()).client() as client:
        with pytest.raises(httpx2.ConnectError, match="nowhere"):
            await client.get("https://nowhere.example.com/")


async def test_each_request_is_charged_to_its_organisation() -> None:
    async with upstream_server() as allowed:
        hosts = [f"{index}.example.com" for index in range(20)]
        names = Names(**{host.replace(".", "__"): [["127.0.0.1"]] for host in hosts})
        async with Guard(parse_allow("127.0.0.1"), resolver=names).client() as client:
            await asyncio.gather(
                *(
                    client.get(allowed.url(host=host), extensions=charged_to(f"org of {host}"))
                    for host in hosts
                )
            )
            await client.get(allowed.url(host="0.example.com"), headers={"connection": "close"})
    assert names.orgs[:20] == [f"org of {host}" for host in names.asked[:20]]
    assert set(names.orgs[20:]) <= {""}


async def test_the_system_resolver_finds_what_the_hosts_file_has() -> None:
    async with upstream_server() as allowed:
        async with Guard(parse_allow(f"localhost:{allowed.port}")).client() as client:
            answer = await client.get(allowed.url(host="localhost"))
        assert answer.status_code == 200
        with pytest.raises(UrlForbidden):
            await Guard().check_url(allowed.url(scheme="https", host="localhost"))


async def test_a_resolver_that_takes_too_long_is_a_connect_timeout() -> None:
    async def silent(host: str, org: str, timeout: float | None) -> list[object]:
        async with asyncio.timeout(timeout):
            await asyncio.Event().wait()
        raise AssertionError

    guard = Guard(resolver=silent)  # type: ignore[arg-type]
    async with guard.client(timeout=0.05) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await client.get("https://example.com/")


async def test_what_is_sent_arrives_as_it_was_said() -> None:
    async with upstream_server() as allowed:
        async with Guard(parse_allow("127.0.0.1")).client() as client:
            await client.post(allowed.url("/a%2Fb?q=%23"), content=b"\x00body")

        received: Request = allowed.requests[0]
        assert (received.method, received.target) == ("POST", "/a%2Fb?q=%23")
        assert received.body == b"\x00body"
