"""Requests that nobody sends by mistake: each gets a documented refusal, and none a 5xx.

The routes are those that the application serves, so that a new one is tried as the others are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pytest

from coatcheck.domain.limits import JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX
from tests.contract.estate import OWN, Estate
from tests.contract.matrix import Target, targets
from tests.contract.raw import RawAnswer, send
from tests.surfaces.house import House

Odd = TypeVar("Odd")

SECRET = b"swordfish"
KEY_BODY_BYTES_MAX = 16 * 1024
SUBMIT = f"/api/v1/orgs/{OWN}/services/things/async/echo/word"
CALL = f"/api/v1/orgs/{OWN}/services/things/echo/word"
REGISTER = f"/api/v1/orgs/{OWN}/workspaces/default/hosted-services/new"
CREATE_KEY = f"/api/v1/orgs/{OWN}/api-keys"

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
SPLIT_HEADERS = (
    b"X-Request-Id: a\nX-Injected: 1",
    b"X-Request-Id: a\rX-Injected: 1",
    b"X-Request-Id: a\x00b",
    b"Idempotency-Key: a\x00b",
    b"Idempotency-Key: a\rX-Injected: 1",
    b"X-HSL-Lane: urgent\x0b\x00",
    b"X Request Id: a",
    b": a",
)


def nested(levels: int) -> bytes:
    return b'{"value":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


ODD_BODIES: dict[str, tuple[bytes, int]] = {
    "nothing but a brace": (b"{", 400),
    "two values": (b"{} {}", 400),
    "not a number": (b'{"value": NaN}', 400),
    "infinity": (b'{"value": -Infinity}', 400),
    "a number that no float holds": (b'{"value": 1e999}', 400),
    "a number without end": (b'{"value": ' + b"9" * 5_000 + b"}", 400),
    "a NUL in a value": (b'{"value": "' + SECRET + b'\\u0000"}', 400),
    "a NUL in a name": (b'{"\\u0000": 1}', 400),
    "a NUL as it is": (b'{"value": "\x00"}', 400),
    "half of a pair": (b'{"value": "\\ud800"}', 400),
    "not UTF-8": (b'{"value": "' + SECRET + b'\xff"}', 400),
    "UTF-16": ('{"value": 1}'.encode("utf-16"), 400),
    "too deep": (nested(JSON_DEPTH_MAX + 1), 400),
    "far too deep": (b"[" * 100_000, 400),
    "too large": (b'{"value": "' + SECRET * PAYLOAD_BYTES_MAX + b'"}', 413),
}


class Documented:
    """The statuses that the OpenAPI document has for each route."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._paths = document["paths"]

    def statuses(self, target: Target) -> set[int]:
        path = target.operation.path.replace(":path}", "}")
        return {int(status) for status in self._paths[path][target.method.lower()]["responses"]}


@pytest.fixture
async def documented(estate: Estate) -> Documented:
    return Documented((await estate.house.http.get("/openapi.json")).json())


class Tally:
    """Counts the requests and keeps those whose answers are not in the document, or are a fault."""

    def __init__(self, documented: Documented) -> None:
        self._documented = documented
        self.requests = 0
        self.wrong: list[str] = []

    def judge(self, what: str, target: Target, answer: RawAnswer) -> None:
        self.requests += 1
        fits = answer.status in self._documented.statuses(target) and answer.status < 500
        if not fits or answer.header("x-injected") is not None:
            self.wrong.append(f"{target}, {what[:80]!r}: {answer.status} {answer.body[:300]!r}")
        assert answer.header("x-request-id")
        if answer.status >= 400:
            assert answer.problem()["status"] == answer.status

    def close(self) -> None:
        print(f"{self.requests} requests")
        assert self.requests > 0
        assert self.wrong == []


def a_third(odd: Sequence[Odd], number: int) -> Sequence[Odd]:
    """Every third, beginning at another one for each route: each is tried on many routes, and all
    together take a third of the time."""
    return odd[number % 3 :: 3]


async def test_odd_names_in_every_part_of_every_path(
    estate: Estate, documented: Documented
) -> None:
    tally = Tally(documented)
    for number, target in enumerate(targets(estate)):
        for name in target.operation.parameter_names:
            for odd in a_third(ODD_NAMES, number):
                answer = await send_to(target, target.path(**{name: odd}))
                # Where a name leads elsewhere, the path is another route's.
                if odd not in ("v1", "async", "jobs") or answer.status >= 500:
                    tally.judge(f"{name}={odd}", target, answer)
    tally.close()


async def test_a_nul_in_any_part_of_any_path_is_refused(estate: Estate) -> None:
    requests = 0
    for target in targets(estate):
        for name in target.operation.parameter_names:
            for spelt in ("%00", "a%00b", "%00" * 100):
                answer = await send_to(target, target.path(**{name: spelt}))
                assert (answer.status, answer.problem()["code"]) == (400, "malformed_request")
                requests += 1
    print(f"{requests} requests")


async def test_a_path_longer_than_a_head_may_be_is_refused(
    estate: Estate, documented: Documented
) -> None:
    tally = Tally(documented)
    for target in targets(estate):
        for name in target.operation.parameter_names:
            answer = await send_to(target, target.path(**{name: "x" * 20_000}))
            tally.judge(f"a long {name}", target, answer)
            assert (answer.status, answer.problem()["code"]) == (431, "headers_too_large")
    tally.close()


async def test_odd_queries_on_every_route(estate: Estate, documented: Documented) -> None:
    tally = Tally(documented)
    for number, target in enumerate(targets(estate)):
        for odd in a_third(ODD_QUERIES, number):
            answer = await send_to(target, f"{target.path()}?{odd}".encode("latin-1", "replace"))
            tally.judge(f"?{odd}", target, answer)
    tally.close()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("to=0001-01-01", 400),
        ("to=0001-02-01", 200),
        ("to=9999-12-31", 200),
        ("from=2026-01-31&to=2026-01-31", 200),
        ("from=2026-02-01&to=2026-01-31", 400),
        ("from=2020-01-01&to=2026-01-31", 400),
        ("from=2026-W01-1", 400),
        ("from=20260131", 400),
        ("from=2026-1-31", 400),
        ("from=2026-02-30", 400),
    ],
)
async def test_days_are_written_in_full_and_those_that_exist_will_do(
    house: House, query: str, status: int
) -> None:
    answer = await send(house, "GET", f"/api/v1/orgs/{OWN}/usage?{query}")
    assert answer.status == status


async def test_a_wait_is_any_number_of_seconds(estate: Estate) -> None:
    job = f"/api/v1/orgs/{OWN}/services/things/jobs/{estate.ended_job.own}"
    for seconds in ("0", "0.5", "36.79143436843526", "1e-7", "1E%2B300", "61"):
        assert (await send(estate.house, "GET", f"{job}?wait={seconds}")).status == 200, seconds
    for no_number in ("", "-1", "nan", "inf", "1_0", ".", "0x1", "%D9%A3"):
        assert (await send(estate.house, "GET", f"{job}?wait={no_number}")).status == 400, no_number


async def test_odd_headers_on_every_route(estate: Estate, documented: Documented) -> None:
    tally = Tally(documented)
    for number, target in enumerate(targets(estate)):
        for odd in a_third(ODD_HEADERS, number):
            tally.judge(repr(odd), target, await send_to(target, target.path(), odd))
    tally.close()


async def test_a_header_that_would_become_two_is_no_request(estate: Estate) -> None:
    for odd in SPLIT_HEADERS:
        answer = await send(estate.house, "POST", SUBMIT, odd, body=b"{}")
        assert (answer.status, answer.problem()["code"]) == (400, "malformed_request"), odd
        assert answer.header("x-injected") is None


async def test_what_is_echoed_cannot_leave_its_header(estate: Estate) -> None:
    """What of a request comes back in headers: its id, what it preferred, the names in its URLs."""
    answer = await send(
        estate.house,
        "POST",
        SUBMIT,
        b"X-Request-Id: <script>%0d%0aX-Injected:1",
        b"Prefer: wait=0.5;x=%0d%0aX-Injected:1, handling=lenient",
        b"Idempotency-Key: %0d%0aX-Injected:1",
        body=b"{}",
    )
    assert answer.status in (200, 202)
    assert answer.header("x-request-id") == "<script>%0d%0aX-Injected:1"
    assert answer.header("preference-applied") == "wait=0.5, handling=lenient"
    assert answer.header("x-injected") is None
    assert answer.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", SUBMIT), ("POST", CALL), ("PUT", REGISTER), ("POST", CREATE_KEY)],
    ids=["submit", "call", "register", "create a key"],
)
async def test_a_body_that_is_not_json_or_too_much_is_refused_and_not_quoted(
    estate: Estate, method: str, path: str
) -> None:
    for what, (body, usual_status) in ODD_BODIES.items():
        too_large = path == CREATE_KEY and len(body) > KEY_BODY_BYTES_MAX
        status = 413 if too_large else usual_status
        answer = await send(
            estate.house, method, path, b"Content-Type: application/json", body=body
        )
        code = {400: "invalid_body", 413: "body_too_large"}[status]
        assert (answer.status, answer.problem()["code"]) == (status, code), what
        assert SECRET not in answer.body, what


async def test_an_odd_body_on_every_route_that_takes_one(
    estate: Estate, documented: Documented
) -> None:
    tally = Tally(documented)
    for target in targets(estate):
        if target.operation.body is None:
            continue
        for what, (body, _) in ODD_BODIES.items():
            answer = await send(
                estate.house,
                target.method,
                target.path(),
                b"Content-Type: application/json",
                b"Prefer: respond-async",
                body=body,
            )
            tally.judge(what, target, answer)
        for value in odd_values():
            answer = await send(
                estate.house,
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


async def send_to(target: Target, path: str | bytes, *headers: bytes) -> RawAnswer:
    """A request of the target's own, but for its path and these headers."""
    value = target.entry.json(target.estate)
    body = None if value is None else json.dumps(value).encode()
    headers = (b"Prefer: respond-async", *headers)
    if body is not None:
        headers = (b"Content-Type: application/json", *headers)
    return await send(target.estate.house, target.method, path, *headers, body=body)
