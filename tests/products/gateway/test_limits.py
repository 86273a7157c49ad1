"""Limits as a gateway's caller meets them."""

from __future__ import annotations

from coatcheck.domain.tenants import RateLimit
from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import know_docs, problem


async def test_a_key_over_its_rate_is_refused_on_submits_and_reads_alike(
    deployment: Deployment,
) -> None:
    await know_docs(deployment)
    key = bearer(await deployment.create_key(rate=RateLimit(3, 3_600)))
    submit = await deployment.http.post(paths.submit("/process"), json={}, headers=key)
    assert submit.status_code == 202
    assert (submit.headers["ratelimit-limit"], submit.headers["ratelimit-remaining"]) == ("3", "2")
    poll_url = submit.json()["poll_url"]
    for path in (poll_url, paths.jobs()):
        assert (await deployment.http.get(path, headers=key)).status_code == 200
    for answer in (
        await deployment.http.get(poll_url, headers=key),
        await deployment.http.get(paths.jobs(), headers=key),
        await deployment.http.post(poll_url + "/cancel", headers=key),
        await deployment.http.post(paths.submit("/process"), json={}, headers=key),
        await deployment.http.post(paths.call("/process"), json={}, headers=key),
    ):
        problem(answer, 429, "rate_limited")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["ratelimit-remaining"] == "0"
        assert answer.headers["ratelimit-policy"] == '"key";q=3;w=3600'
        assert answer.headers["ratelimit"].startswith('"key";r=0;t=')


async def test_a_backlog_counts_every_endpoint_of_the_organisation(deployment: Deployment) -> None:
    await know_docs(deployment)
    await deployment.create_org("busy", backlog_max=2)
    key = bearer(await deployment.create_key("busy"))
    for path in ("/process", "/echo"):
        answer = await deployment.http.post(paths.submit(path, org="busy"), json={}, headers=key)
        assert answer.status_code == 202
    for http in (deployment.http, (await deployment.start_server()).http):
        for path in ("/process", "/talk"):
            answer = await http.post(paths.submit(path, org="busy"), json={}, headers=key)
            problem(answer, 429, "queue_full")
            assert int(answer.headers["retry-after"]) >= 1
    assert (await deployment.http.get(paths.jobs(org="busy"), headers=key)).json()["total"] == 2
