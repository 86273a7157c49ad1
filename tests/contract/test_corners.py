"""Requests that nobody sends by mistake: each gets a documented refusal, and none a 5xx.

The routes are those that the application serves, so that a new one is tried as the others are. More
that is odd, and changes nothing: test_odd_refusals.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from coatcheck.http.routing import HoldsOpen
from tests.contract.matrix import Target, targets
from tests.contract.oddities import ODD_BODIES, Documented, Tally, send_to
from tests.contract.raw import send
from tests.contract.tenant_resources import TenantResources

Odd = TypeVar("Odd")

ODD_NAMES = (
    ".",
    "..",
    "%2E%2E",
    "%2F",
    "a%2Fb",
    "%5C..%5C",
    "%20",
    "%25",
    "%2525",
    "%",
    "%zz",
    "%FF",
    "%C3%28",
    "%ED%A0%80",
    "%F0%9F%92%A5",
    "%E2%80%AE",
    "%EF%BB%BF",
    "%0A",
    "%0D%0AX-Injected:%201",
    "%7F",
    "'",
    "%27%20OR%20%271%27=%271",
    ";",
    "$1",
    "{org}",
    "*",
    "~",
    "null",
    "-1",
    "v1",
    "async",
    "jobs",
    "x" * 64,
    "x" * 8_000,
    "0" * 26,
    "7" + "Z" * 25,
    "8" + "Z" * 25,
)
ODD_QUERIES = (
    "%00=1",
    "wait=%00",
    "wait=%FF",
    "wait=nan",
    "wait=-1",
    "wait=inf",
    "wait=\u0663",
    "wait=1&wait=1",
    "limit=99999999999999999999999999",
    "limit=1e2",
    "limit=-1",
    "offset=\u00b2",
    "cursor=%F0%9F%92%A5",
    "status='",
    "lane=",
    "from=0001-01-01",
    "to=0001-01-01",
    "to=9999-12-31",
    "from=2026-W01-1",
    "from=2026-02-30",
    "format=xml",
    "job_ids=,,,",
    "job_ids=" + ",".join("x" * 201),
    "after=-1",
    "after=99999999999999999999",
    "&&&",
    "=",
    "%",
    "&".join(f"f{number}=1" for number in range(101)),
)
ODD_HEADERS = (
    b"X-Request-Id: \xff\xfe",
    b"X-Request-Id: a b",
    b"X-Request-Id: " + b"x" * 4_000,
    b"X-Request-Id:",
    b"Idempotency-Key:",
    b'Idempotency-Key: "',
    b'Idempotency-Key: "a',
    b'Idempotency-Key: "\\n"',
    b"Idempotency-Key: \xff\xfe",
    b"Idempotency-Key: \xe2\x80\xae",
    b"Idempotency-Key: a\tb",
    b"Idempotency-Key: " + b"x" * 256,
    b"Idempotency-Key: a\r\nX-Idempotency-Key: b",
    b"X-HSL-Lane:",
    b"X-HSL-Lane: \xff",
    b"X-HSL-Lane: urgent, bulk",
    b"X-HSL-Lane: " + b"x" * 4_000,
    b"X-HSL-Target-Method:",
    b"X-HSL-Target-Method: \xff",
    b"X-HSL-Target-Method: BREW",
    b"Prefer: wait=0, wait=99999999999, wait=, ;;;=, respond-async=\xff",
    b'Prefer: wait="',
    b"If-None-Match: \xff, *, W/",
    b"Last-Event-ID: -1",
    b"Last-Event-ID: \xb2",
    b"Last-Event-ID: " + b"9" * 4_000,
    b"Content-Type: \xff/\xfe; charset==;;",
    b"Content-Encoding: gzip, \xff",
    b"Accept: \xff",
    b"X-Api-Key: \xff",
    b"Stripe-Signature: t=,v1=,t=\xff",
    b"Stripe-Signature: t=" + b"9" * 4_000 + b",v1=00",
    b"Range: bytes=0-0,-",
    b"Expect: 200-maybe",
    b"Upgrade: websocket\r\nConnection: Upgrade",
)


def a_third(odd: Sequence[Odd], number: int) -> Sequence[Odd]:
    """Every third, beginning at another one for each route: each is tried on many routes, and all
    together take a third of the time."""
    return odd[number % 3 :: 3]


def _ended_by_itself(target: Target) -> str:
    """What the query of a stream begins with that would end only when its reader leaves."""
    operation = target.route
    is_endless = operation.held is HoldsOpen.ALWAYS and "wait" in operation.query_names
    return "wait=0&" if is_endless else ""


async def test_odd_names_in_every_part_of_every_path(resources: TenantResources) -> None:
    tally = Tally(await Documented.of(resources))
    for number, target in enumerate(targets(resources)):
        for name in target.route.parameter_names:
            for odd in a_third(ODD_NAMES, number):
                answer = await send_to(target, target.path(**{name: odd}))
                # Where a name leads elsewhere, the path is another route's.
                if odd not in ("v1", "async", "jobs") or answer.status >= 500:
                    tally.judge(f"{name}={odd}", target, answer)
    tally.close()


async def test_odd_queries_on_every_route(resources: TenantResources) -> None:
    tally = Tally(await Documented.of(resources))
    for number, target in enumerate(targets(resources)):
        for odd in a_third(ODD_QUERIES, number):
            path = f"{target.path()}?{_ended_by_itself(target)}{odd}"
            answer = await send_to(target, path.encode("latin-1", "replace"))
            tally.judge(f"?{odd}", target, answer)
    tally.close()


async def test_odd_headers_on_every_route(resources: TenantResources) -> None:
    tally = Tally(await Documented.of(resources))
    for number, target in enumerate(targets(resources)):
        for odd in a_third(ODD_HEADERS, number):
            path = f"{target.path()}?{_ended_by_itself(target)}".rstrip("?&")
            tally.judge(repr(odd), target, await send_to(target, path, odd))
    tally.close()


async def test_an_odd_body_on_every_route_that_takes_one(resources: TenantResources) -> None:
    tally = Tally(await Documented.of(resources))
    for target in targets(resources):
        if target.route.body is None:
            continue
        for what, (body, _) in ODD_BODIES.items():
            answer = await send(
                resources.deployment,
                target.method,
                target.path(),
                b"Content-Type: application/json",
                b"Prefer: respond-async",
                body=body,
            )
            tally.judge(what, target, answer)
        for value in odd_values():
            answer = await send(
                resources.deployment,
                target.method,
                target.path(),
                b"Content-Type: application/json",
                b"Prefer: respond-async",
                body=json.dumps(value).encode(),
            )
            tally.judge(repr(value), target, answer)
    tally.close()


def odd_values() -> Iterator[Any]:
    yield from (None, True, 0, "", [], {}, [[]], {"": None}, {"name": None}, {"versions": None})
    yield {"name": "x" * 101}
    yield {"name": "\u202e\ud83d\udca5", "user": "\n"}
    yield {"name": "x", "expires_in_seconds": 10**30}
    yield {"name": "x", "rate_limit": {"requests": 2**63, "seconds": -1}}
    yield {"name": "x", "scopes": ["root"]}
    yield {"versions": {"0": {"endpoints": []}}}
    yield {"versions": {"1": {"endpoints": [{}]}}}
    for url in ("", "x", "http://", "https://[::", "https://a:99999999", "//\u202e", "file:///etc"):
        target = {"type": "http", "url": url}
        endpoint = {"method": "GET", "path": "/", "target": target}
        yield {"versions": {"1": {"endpoints": [endpoint]}}}
