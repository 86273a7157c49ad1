"""One key, one job."""

from __future__ import annotations

import asyncio

from tests.contract.raw import send
from tests.deployment import Deployment
from tests.products.batches.asking import ADD, JOBS, NDJSON, know_sums, lines, problem, told

TASKS = ADD | {"tasks": [{"a": 1}]}
KEY = {"Idempotency-Key": "order-7"}


async def test_a_known_key_is_answered_before_a_list_is_read(deployment: Deployment) -> None:
    await know_sums(deployment)
    first = await deployment.http.post(JOBS, params=ADD, content=b'{"a":1}\n', headers=NDJSON | KEY)
    answer = await send(
        deployment,
        "POST",
        f"{JOBS}?service=sums&endpoint=%2Fadd",
        b"Content-Type: application/x-ndjson",
        b"Idempotency-Key: order-7",
        b"Content-Length: 9000000000",  # of which nothing comes
    )
    assert answer.status == 202
    assert told(first, 201)["id"].encode() in answer.body


async def test_who_is_strict_has_a_list_compared(deployment: Deployment) -> None:
    await know_sums(deployment)
    data, strict = lines([{"a": 1}]), {"Prefer": "handling=strict"}
    told(await deployment.http.post(JOBS, params=ADD, content=data, headers=NDJSON | KEY), 201)
    same = await deployment.http.post(JOBS, params=ADD, content=data, headers=NDJSON | KEY | strict)
    assert same.status_code == 202
    other = await deployment.http.post(
        JOBS, params=ADD, content=lines([{"a": 2}]), headers=NDJSON | KEY | strict
    )
    problem(other, 422, "idempotency_mismatch")
    options = await deployment.http.post(
        JOBS, params=ADD | {"retries": "1"}, content=data, headers=NDJSON | KEY
    )
    assert options.headers["Idempotency-Mismatch"] == "true"


async def test_of_many_at_once_one_makes_the_job(deployment: Deployment) -> None:
    await know_sums(deployment)
    short = [deployment.http.post(JOBS, json=TASKS, headers=KEY) for _ in range(10)]
    answers = await asyncio.gather(*short)
    assert sorted(answer.status_code for answer in answers) == [201] + [202] * 9
    assert len({answer.json()["id"] for answer in answers}) == 1
    data = lines({"a": n} for n in range(1_500))
    headers = NDJSON | {"Idempotency-Key": "a list"}
    long = [deployment.http.post(JOBS, params=ADD, content=data, headers=headers) for _ in range(5)]
    answers = await asyncio.gather(*long)
    assert len({told(answer, 202)["id"] for answer in answers}) == 1
    stored = [key async for page in deployment.engine.blobs.keys_under("lists") for key in page]
    assert len(stored) == 1  # those who came too late left nothing
