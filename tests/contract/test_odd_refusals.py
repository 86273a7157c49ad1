"""Odd requests that are refused, or only read: they leave everything as it was.

So they share an resources. Those that may change something are in test_corners.py.
"""

from __future__ import annotations

import pytest

from tests.contract.matrix import targets
from tests.contract.oddities import ODD_BODIES, SECRET, Documented, Tally, send_to
from tests.contract.raw import send
from tests.contract.tenant_resources import OWN, TenantResources

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY_BODY_BYTES_MAX = 16 * 1024
SUBMIT = f"/api/v1/orgs/{OWN}/services/things/async/echo/word"
CALL = f"/api/v1/orgs/{OWN}/services/things/echo/word"
REGISTER = f"/api/v1/orgs/{OWN}/workspaces/default/hosted-services/new"
CREATE_KEY = f"/api/v1/orgs/{OWN}/api-keys"

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


async def test_a_nul_in_any_part_of_any_path_is_refused(standing: TenantResources) -> None:
    requests = 0
    for target in targets(standing):
        for name in target.route.parameter_names:
            for spelt in ("%00", "a%00b", "%00" * 100):
                answer = await send_to(target, target.path(**{name: spelt}))
                assert (answer.status, answer.problem()["code"]) == (400, "malformed_request")
                requests += 1
    print(f"{requests} requests")


async def test_a_path_longer_than_a_head_may_be_is_refused(standing: TenantResources) -> None:
    tally = Tally(await Documented.of(standing))
    for target in targets(standing):
        for name in target.route.parameter_names:
            answer = await send_to(target, target.path(**{name: "x" * 20_000}))
            tally.judge(f"a long {name}", target, answer)
            assert (answer.status, answer.problem()["code"]) == (431, "headers_too_large")
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
    standing: TenantResources, query: str, status: int
) -> None:
    answer = await send(standing.deployment, "GET", f"/api/v1/orgs/{OWN}/usage?{query}")
    assert answer.status == status


async def test_a_wait_is_any_number_of_seconds(standing: TenantResources) -> None:
    job = f"/api/v1/orgs/{OWN}/services/things/jobs/{standing.ended_job.own}"
    for seconds in ("0", "0.5", "36.79143436843526", "1e-7", "1E%2B300", "61"):
        assert (await send(standing.deployment, "GET", f"{job}?wait={seconds}")).status == 200, (
            seconds
        )
    for no_number in ("", "-1", "nan", "inf", "1_0", ".", "0x1", "%D9%A3"):
        assert (await send(standing.deployment, "GET", f"{job}?wait={no_number}")).status == 400, (
            no_number
        )


async def test_a_header_that_would_become_two_is_no_request(standing: TenantResources) -> None:
    for odd in SPLIT_HEADERS:
        answer = await send(standing.deployment, "POST", SUBMIT, odd, body=b"{}")
        assert (answer.status, answer.problem()["code"]) == (400, "malformed_request"), odd
        assert answer.header("x-injected") is None


async def test_what_is_echoed_cannot_leave_its_header(standing: TenantResources) -> None:
    """What of a request comes back in headers: its id, what it preferred, the names in its URLs."""
    answer = await send(
        standing.deployment,
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
    standing: TenantResources, method: str, path: str
) -> None:
    for what, (body, usual_status) in ODD_BODIES.items():
        too_large = path == CREATE_KEY and len(body) > KEY_BODY_BYTES_MAX
        status = 413 if too_large else usual_status
        answer = await send(
            standing.deployment, method, path, b"Content-Type: application/json", body=body
        )
        code = {400: "invalid_body", 413: "body_too_large"}[status]
        assert (answer.status, answer.problem()["code"]) == (status, code), what
        assert SECRET not in answer.body, what
