"""The list of services: pages of summaries, however much the services themselves hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.products.gateway.registration_routes import DEFINITION_BYTES_MAX
from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import know_docs, problem

LIST = "/api/v1/orgs/default/services"
SERVICES_MAX = 5


@pytest.fixture
async def limited(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment where an organisation may register few services."""
    async with Deployment(dsn, tmp_path, services_max=SERVICES_MAX) as opened:
        yield opened


def service(*endpoints_of_versions: int) -> dict[str, Any]:
    """A document with so many endpoints in version 1, in version 2, and so on."""
    target = {"type": "http", "url": "http://127.0.0.1/"}
    return {
        "versions": {
            str(number): {
                "endpoints": [
                    {"method": "POST", "path": f"/path-{at}", "target": target}
                    for at in range(endpoints)
                ]
            }
            for number, endpoints in enumerate(endpoints_of_versions, 1)
        }
    }


async def register(
    deployment: Deployment, name: str, document: dict[str, Any], ws: str = "team"
) -> None:
    answer = await deployment.http.put(paths.hosted(name, workspace=ws), json=document)
    assert answer.status_code == 200, answer.text


async def test_a_summary_says_what_there_is_and_leads_to_the_whole(deployment: Deployment) -> None:
    await know_docs(deployment)
    await register(deployment, "books", service(3, 4))
    listed = (await deployment.http.get(LIST)).json()
    books, docs = listed["items"]
    assert (books["service_id"], books["workspace_id"], books["source"]) == (
        "books",
        "team",
        "http",
    )
    assert (books["versions"], books["latest_version"], books["endpoint_count"]) == ([1, 2], 2, 7)
    assert (docs["service_id"], docs["source"], docs["versions"]) == ("docs", "code", [1])
    assert "definition" not in books
    whole = (await deployment.http.get(books["url"])).json()
    assert (whole["service_id"], whole["updated_at"]) == ("books", books["updated_at"])
    assert [len(each["endpoints"]) for each in whole["definition"]["versions"].values()] == [3, 4]


async def test_versions_are_listed_by_number(deployment: Deployment) -> None:
    await register(deployment, "old", service(*[1] * 12))
    (listed,) = (await deployment.http.get(LIST)).json()["items"]
    assert listed["versions"] == list(range(1, 13))


async def test_a_service_that_is_registered_anew_is_summed_up_anew(deployment: Deployment) -> None:
    await register(deployment, "books", service(3))
    await register(deployment, "books", service(1, 1))
    (listed,) = (await deployment.http.get(LIST)).json()["items"]
    assert (listed["versions"], listed["endpoint_count"]) == ([1, 2], 2)


async def test_pages_follow_each_other_by_name(limited: Deployment) -> None:
    names = [f"service-{number}" for number in range(SERVICES_MAX)]
    for name in reversed(names):
        await register(limited, name, service(1))
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await limited.http.get(LIST, params=query)).json()
        assert len(page["items"]) <= 2
        found += [each["service_id"] for each in page["items"]]
        cursor = page["next"]
    assert found == names


async def test_a_page_is_small_however_many_endpoints_its_services_have(
    limited: Deployment,
) -> None:
    for number in range(SERVICES_MAX):
        await register(limited, f"service-{number}", service(*[100] * 5))
    page = await limited.http.get(LIST)
    assert [each["endpoint_count"] for each in page.json()["items"]] == [500] * SERVICES_MAX
    assert len(page.content) < 1_000 * SERVICES_MAX


async def test_one_service_too_many_is_refused_and_known_ones_are_not(limited: Deployment) -> None:
    for number in range(SERVICES_MAX):
        await register(limited, f"service-{number}", service(1))
    over = await limited.http.put(paths.hosted("another"), json=service(1))
    refused = problem(over, 409, "too_many_services")
    assert str(SERVICES_MAX) in refused["detail"]
    await register(limited, "service-0", service(2))
    taken = await limited.http.put(paths.hosted("service-0", workspace="else"), json=service(1))
    problem(taken, 409, "service_name_taken")

    gone = await limited.http.delete(paths.hosted("service-1", workspace="team"))
    assert gone.status_code == 204
    await register(limited, "another", service(1))


async def test_services_of_code_and_of_others_take_no_place(limited: Deployment) -> None:
    await know_docs(limited)
    await limited.create_org("neighbour")
    auth = bearer(await limited.create_key("neighbour"))
    for number in range(SERVICES_MAX):
        await register(limited, f"service-{number}", service(1))
    theirs = await limited.http.put(
        paths.hosted("mine", org="neighbour"), json=service(1), headers=auth
    )
    assert theirs.status_code == 200, theirs.text


async def test_a_service_has_so_many_endpoints_and_no_more(deployment: Deployment) -> None:
    await register(deployment, "books", service(*[100] * 5))
    over = await deployment.http.put(paths.hosted("books"), json=service(*[100] * 5, 1))
    refused = problem(over, 422, "invalid_input")
    assert refused["details"][0]["field"] == "versions"
    assert "501" in refused["details"][0]["issue"]


async def test_a_definition_has_so_many_bytes_and_no_more(deployment: Deployment) -> None:
    document = service(1)
    (endpoint,) = document["versions"]["1"]["endpoints"]
    endpoint["target"]["headers"] = {f"X-{number}": "x" * 8_000 for number in range(40)}
    over = await deployment.http.put(paths.hosted("books"), json=document)
    problem(over, 413, "body_too_large")
    assert str(DEFINITION_BYTES_MAX) in over.json()["detail"]
