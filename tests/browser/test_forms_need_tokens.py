"""Whatever changes something is asked for by a form of ours, with its token, or it is not done."""

from __future__ import annotations

import httpx2
import pytest

from coatcheck.dashboard import pages
from coatcheck.domain.tenants import Scope
from coatcheck.http.app import create_app
from coatcheck.http.routing import Route
from tests.all_products import SURFACES
from tests.browser.errands import end_of, state_of, waiting_at
from tests.browser.errands_service import gates
from tests.browser.signing_in import sign_in, token_in
from tests.deployment import Deployment

pytestmark = pytest.mark.asyncio(loop_scope="session")

FETCHED_BY_OTHERS = ("cross-site", "same-site", "none")


def actions(deployment: Deployment) -> list[Route]:
    """Every route of the dashboard that takes anything but GET, but for the door itself."""
    api = {route.name for route in create_app(deployment.context, SURFACES).routes}
    served = create_app(deployment.context, SURFACES, pages.routes).routes
    return [
        route
        for route in served
        if route.name not in api
        and set(route.methods) != {"GET"}
        and route.name != "ui_sign_in_sent"
    ]


def filled(route: Route, job_id: str) -> str:
    return route.path.format(**dict.fromkeys(route.parameter_names, job_id))


async def test_no_form_is_taken_without_its_token_or_from_another_site(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    job_id = await waiting_at(deployment, "forged")
    await sign_in(visitor, deployment.key)
    token = token_in((await visitor.get("/ui/keys")).text)
    keys = (await deployment.http.get("/api/v1/orgs/default/api-keys")).json()
    tried = actions(deployment)
    assert len(tried) > 15
    for route in tried:
        path = filled(route, job_id)
        fields = {"confirmed": "yes", "name": "forged", "id": job_id, "url": "http://127.0.0.1:9/"}
        for forged in ({}, {"csrf": ""}, {"csrf": token[:-1] + "!"}):
            answer = await visitor.post(path, data=fields | forged)
            assert (answer.status_code, route.name) == (403, route.name)
            assert "csrf_refused" in answer.text
        for site in FETCHED_BY_OTHERS:
            answer = await visitor.post(
                path, data=fields | {"csrf": token}, headers={"Sec-Fetch-Site": site}
            )
            assert (answer.status_code, route.name) == (403, route.name)
        elsewhere = {"Origin": "https://evil.example"}
        answer = await visitor.post(path, data=fields | {"csrf": token}, headers=elsewhere)
        assert (answer.status_code, route.name) == (403, route.name)
    assert await state_of(deployment, job_id) in ("dispatching", "processing")
    assert (await deployment.http.get("/api/v1/orgs/default/api-keys")).json() == keys

    # The same form with its token is taken: nothing but the token was amiss.
    taken = await visitor.post(
        f"/ui/jobs/{job_id}/cancel", data={"confirmed": "yes", "csrf": token}
    )
    assert taken.status_code == 303
    assert (await end_of(deployment, job_id))["state"] == "cancelled"


async def test_nobody_who_is_not_signed_in_gets_anywhere(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    for route in actions(deployment):
        answer = await visitor.post(filled(route, "x"), data={"confirmed": "yes"})
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/ui/sign-in")


async def test_a_key_that_may_only_read_is_offered_nothing_else_and_allowed_nothing_else(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    job_id = await waiting_at(deployment, "read only")
    await sign_in(visitor, await deployment.create_key(scopes={Scope.READ}))
    page = await visitor.get(f"/ui/jobs/{job_id}")
    assert "/cancel" not in page.text.replace(f"/jobs/{job_id}/live", "")
    listed = await visitor.get("/ui/jobs")
    assert "bulk-cancel" not in listed.text
    assert 'type="checkbox"' not in listed.text
    fields = {"confirmed": "yes", "csrf": token_in(page.text), "id": job_id}
    for path in (f"/ui/jobs/{job_id}/cancel", "/ui/jobs/cancel", "/ui/keys", "/ui/webhooks"):
        assert (await visitor.post(path, data=fields)).status_code == 403
    assert (await visitor.get("/ui/keys")).status_code == 403
    assert await state_of(deployment, job_id) in ("dispatching", "processing")
    gates.opened["read only"].set()
    await end_of(deployment, job_id)
