"""Many callers at once, on two replicas."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import know_docs, problem
from tests.waiting import eventually_async


async def test_a_hundred_submits_of_one_key_on_two_replicas_make_one_job(
    deployment: Deployment,
) -> None:
    await know_docs(deployment)
    replicas = [deployment.http, (await deployment.start_server()).http]
    answers = await asyncio.gather(
        *(
            replicas[number % 2].post(
                paths.submit("/process"), json={}, headers={"Idempotency-Key": "one"}
            )
            for number in range(100)
        )
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    replayed = Counter(answer.headers.get("idempotent-replayed") for answer in answers)
    assert replayed == {None: 1, "true": 99}
    assert (await deployment.http.get(paths.jobs())).json()["total"] == 1


async def test_different_payloads_under_one_key_agree_on_one_job(deployment: Deployment) -> None:
    await know_docs(deployment)
    replicas = [deployment.http, (await deployment.start_server()).http]
    answers = await asyncio.gather(
        *(
            replicas[number % 2].post(
                paths.submit("/process"),
                json={"data": str(number)},
                headers={"Idempotency-Key": "one"},
            )
            for number in range(40)
        )
    )
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    fresh = [answer for answer in answers if "idempotent-replayed" not in answer.headers]
    assert len(fresh) == 1
    mismatched = [answer for answer in answers if "idempotency-mismatch" in answer.headers]
    assert len(mismatched) == 39


async def test_concurrent_synchronous_calls_of_one_key_share_one_result(
    staffed: Deployment,
) -> None:
    replicas = [staffed.http, (await staffed.start_server()).http]
    answers = await asyncio.gather(
        *(
            replicas[number % 2].post(
                paths.call("/talk"), json={}, headers={"Idempotency-Key": "one"}
            )
            for number in range(20)
        )
    )
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, "said")] * 20
    assert len({answer.links["job"]["url"] for answer in answers}) == 1


async def test_a_revoked_key_fails_on_every_replica(deployment: Deployment) -> None:
    await know_docs(deployment)
    second = (await deployment.start_server()).http
    key = await deployment.create_key()
    for http in (deployment.http, second):
        assert (await http.get(paths.jobs(), headers=bearer(key))).status_code == 200
    await deployment.revoke_key(key)

    async def refused() -> bool:
        answers = [
            await http.get(paths.jobs(), headers=bearer(key)) for http in (deployment.http, second)
        ]
        return {answer.status_code for answer in answers} == {401}

    await eventually_async(refused, "both replicas refuse the key", limit=10)
    answer = await second.post(paths.submit("/process"), json={}, headers=bearer(key))
    problem(answer, 401, "unauthenticated")


async def test_a_result_is_collected_from_any_replica(staffed: Deployment) -> None:
    second = (await staffed.start_server()).http
    ticket = (await staffed.http.post(paths.submit("/talk"), json={})).json()
    job = (await second.get(ticket["poll_url"], params={"wait": "30"})).json()
    assert job["result_summary"] == "said"
