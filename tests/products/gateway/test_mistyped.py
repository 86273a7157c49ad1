"""What is mistyped is said: the service, its version or the path."""

from __future__ import annotations

import pytest

from coatcheck import Service
from tests.deployment import Deployment

SERVICES = "/api/v1/orgs/default/services"

shop = Service("shop")


@shop.post("/buy")
async def buy() -> str:
    return "bought"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("shopp/async/buy", "There is no such service. A Python service exists once a worker"),
        ("shop/v7/async/buy", "The service has no such version; it has 1."),
        ("shop/async/bye", "The service has no such path; it has POST /buy."),
        ("shop/bye", "The service has no such path; it has POST /buy."),
    ],
)
async def test_the_answer_says_which_and_what_there_is(
    deployment: Deployment, path: str, says: str
) -> None:
    await deployment.start_worker(shop)
    answer = await deployment.http.post(f"{SERVICES}/{path}", json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.json()["detail"].startswith(says)
