"""Who may read, follow and cancel a job: the one who handed it in, or anyone."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import pytest_asyncio

from coatcheck.domain.tenants import USER_SCOPES, Scope
from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import problem
from tests.products.gateway.tokens import MACHINES, USERS, token

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trusting(shared: Deployment) -> Deployment:
    """The deployment, in which there is another organisation besides."""
    await shared.create_org("elsewhere")
    return shared


async def test_the_same_user_may_whatever_credential_they_use(trusting: Deployment) -> None:
    ticket = await handed_in(trusting, "/process", bearer(trusting.key))
    another_key = bearer(await trusting.create_key(user="dev"))
    assert await may(trusting, ticket, another_key)
    assert await may(trusting, ticket, token(USERS, sub="dev"))
    assert await may(trusting, ticket, {"X-Api-Key": trusting.key})


async def test_another_user_of_the_organisation_may_not(trusting: Deployment) -> None:
    ticket = await handed_in(trusting, "/process", bearer(trusting.key))
    for stranger in (
        bearer(await trusting.create_key(user="other")),
        token(USERS, sub="other"),
        token(MACHINES, app="reports"),
    ):
        for answer in await tried(trusting, ticket, stranger):
            problem(answer, 404, "job_not_found")


async def test_nobody_of_another_organisation_may(trusting: Deployment) -> None:
    ticket = await handed_in(trusting, "/process", bearer(trusting.key))
    for foreigner in (
        bearer(await trusting.create_key("elsewhere", user="dev")),
        token(USERS, sub="dev", org="elsewhere"),
    ):
        for answer in await tried(trusting, ticket, foreigner):
            problem(answer, 404, "job_not_found")


async def test_a_service_token_needs_the_same_claims(trusting: Deployment) -> None:
    ticket = await handed_in(trusting, "/machines", token(MACHINES, app="reports", tier=2))
    assert await may(trusting, ticket, token(MACHINES, tier=2, app="reports", jti="another"))
    for claims in ({"app": "reports"}, {"app": "reports", "tier": 3}, {"app": "bills", "tier": 2}):
        for answer in await tried(trusting, ticket, token(MACHINES, **claims)):
            problem(answer, 404, "job_not_found")
    for answer in await tried(trusting, ticket, bearer(trusting.key)):
        problem(answer, 404, "job_not_found")


@pytest.mark.parametrize("route", [paths.submit("/machines"), paths.call("/machines")])
async def test_a_service_tokens_key_tells_other_customers_nothing(
    trusting: Deployment, route: str
) -> None:
    named = {"Idempotency-Key": f"invoice-7-{route}", "X-Request-Id": "the-same"}
    owner, other = token(MACHINES, app="reports"), token(MACHINES, app="bills")
    first = await trusting.http.post(route, json={}, headers=named | owner)
    assert first.status_code in (200, 202)
    answer = await trusting.http.post(route, json={}, headers=named | other)
    problem(answer, 409, "idempotency_key_in_use")
    assert not {"location", "link", "idempotent-replayed"}.intersection(answer.headers)
    again = await trusting.http.post(route, json={}, headers=named | owner)
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("route", [paths.submit("/machines"), paths.call("/machines")])
async def test_an_endpoint_for_service_tokens_takes_no_others(
    trusting: Deployment, route: str
) -> None:
    for credential in (bearer(trusting.key), token(USERS, sub="dev")):
        answer = await trusting.http.post(route, json={}, headers=credential)
        problem(answer, 401, "unauthenticated")
    answer = await trusting.http.post(route, json={}, headers=token(MACHINES, app="reports"))
    assert answer.status_code in (200, 202)


async def test_an_open_endpoint_takes_anyone_and_anyone_may_read(trusting: Deployment) -> None:
    ticket = await handed_in(trusting, "/open", None)
    for anyone in (
        None,
        bearer(trusting.key),
        token(MACHINES, app="reports"),
        bearer(await trusting.create_key("elsewhere")),
    ):
        assert await may(trusting, ticket, anyone)
    async with nobody(trusting) as http:
        answer = await http.post(paths.call("/open"), json={"word": "hi"})
    assert (answer.status_code, answer.json()) == (200, "hi")


async def test_a_job_of_an_open_endpoint_is_anyones_even_if_its_caller_is_known(
    trusting: Deployment,
) -> None:
    ticket = await handed_in(trusting, "/open", bearer(trusting.key))
    assert await may(trusting, ticket, None)


async def test_an_open_endpoint_refuses_a_credential_that_does_not_count(
    trusting: Deployment,
) -> None:
    answer = await trusting.http.post(paths.submit("/open"), json={}, headers=bearer("cck_x_y"))
    problem(answer, 401, "unauthenticated")


async def test_an_open_endpoint_is_open_in_organisations_that_exist(trusting: Deployment) -> None:
    async with nobody(trusting) as http:
        problem(await http.post(paths.submit("/open", org="nowhere"), json={}), 404, "not_found")
        answer = await http.post(paths.submit("/process"), json={})
    problem(answer, 401, "unauthenticated")


async def test_scopes_decide_what_a_key_may_do(trusting: Deployment) -> None:
    ticket = await handed_in(trusting, "/process", bearer(trusting.key))
    reader = bearer(await trusting.create_key(scopes=[Scope.READ]))
    submitter = bearer(await trusting.create_key(scopes=[Scope.SUBMIT]))
    user = bearer(await trusting.create_key(scopes=USER_SCOPES))
    http = trusting.http
    for answer in (
        await http.post(paths.submit("/process"), json={}, headers=reader),
        await http.post(paths.call("/process"), json={}, headers=reader),
        await http.post(ticket["cancel_url"], headers=reader),
        await http.get(ticket["poll_url"], headers=submitter),
        await http.get(ticket["events_url"], headers=submitter),
        await http.get(paths.jobs(), headers=submitter),
        await http.get(paths.hosted(), headers=submitter),
        await http.put(paths.hosted("mine"), json={}, headers=user),
        await http.delete(paths.hosted("mine"), headers=user),
    ):
        problem(answer, 403, "missing_scope")
    assert (await http.get(ticket["poll_url"], headers=reader)).status_code == 200


async def handed_in(
    deployment: Deployment, path: str, credential: dict[str, str] | None
) -> dict[str, Any]:
    async with nobody(deployment) as http:
        answer = await http.post(paths.submit(path), json={}, headers=credential)
    assert answer.status_code == 202, answer.text
    ticket: dict[str, Any] = answer.json()
    return ticket


async def tried(
    deployment: Deployment, ticket: dict[str, Any], credential: dict[str, str] | None
) -> list[httpx2.Response]:
    """What the three routes of a job answer to a credential."""
    async with nobody(deployment) as http:
        return [
            await http.get(ticket["poll_url"], headers=credential),
            await http.get(ticket["events_url"], headers=credential),
            await http.post(ticket["cancel_url"], headers=credential),
        ]


async def may(
    deployment: Deployment, ticket: dict[str, Any], credential: dict[str, str] | None
) -> bool:
    """Whether the credential can do all three, or none of them."""
    statuses = {answer.status_code for answer in await tried(deployment, ticket, credential)}
    assert statuses <= {200, 202, 409} or statuses <= {401, 404}
    return statuses <= {200, 202, 409}


def nobody(deployment: Deployment) -> httpx2.AsyncClient:
    """A client that presents nothing by itself."""
    return httpx2.AsyncClient(base_url=deployment.http.base_url, trust_env=False, timeout=60)
