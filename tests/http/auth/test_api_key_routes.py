"""Keys over HTTP: made by an admin, shown once, revoked everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain import tenants
from coatcheck.domain.tenants import ALL_SCOPES, Scope
from coatcheck.settings import Settings
from tests.http.auth.issuers import claims as claims_of
from tests.http.auth.issuers import secret_issuer, token
from tests.http.auth.replicas import Replica, new_key, new_org, spelt
from tests.http.auth.served import bearer, served

PATH = "/api/v1/orgs/acme/api-keys"
NOBODY = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
async def client(settings: Settings, line: Connection) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls as an admin of the organisation."""
    admin = await new_key(line, user="root", scopes=ALL_SCOPES)
    async with served(settings) as (connected, _):
        connected.headers.update(bearer(admin.text))
        yield connected


async def create(client: httpx2.AsyncClient, **wanted: Any) -> dict[str, Any]:
    answer = await client.post(PATH, json={"name": "test"} | wanted)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def test_a_key_is_made_and_works(client: httpx2.AsyncClient, one: Replica) -> None:
    answer = await client.post(
        PATH,
        json={
            "name": "for the importer",
            "user": "grace",
            "scopes": ["read", "submit"],
            "expires_in_seconds": 3600,
            "rate_limit": {"requests": 10, "seconds": 60},
        },
    )
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    created = answer.json()
    assert answer.headers["location"] == f"{PATH}/{created['id']}"
    born, ends = (datetime.fromisoformat(created[name]) for name in ("created_at", "expires_at"))
    assert ends - born == timedelta(hours=1)
    assert {name: created[name] for name in created if not name.endswith("_at")} == {
        "id": created["id"],
        "org_id": "acme",
        "user": "grace",
        "name": "for the importer",
        "scopes": ["read", "submit"],
        "rate_limit": {"requests": 10, "seconds": 60},
        "key": created["key"],
    }
    assert created["revoked_at"] is None
    principal = await one.authenticator.check(created["key"].encode())
    assert (principal.user, principal.key_id) == ("grace", created["id"])


async def test_what_is_left_out_is_the_callers_own_and_modest(client: httpx2.AsyncClient) -> None:
    created = await create(client)
    assert (created["user"], created["scopes"]) == ("root", ["read", "submit"])
    assert (created["rate_limit"], created["expires_at"]) == (None, None)


async def test_the_secret_is_shown_once(client: httpx2.AsyncClient) -> None:
    created = await create(client)
    secret = created["key"].split("_")[2]
    listed, shown = await client.get(PATH), await client.get(f"{PATH}/{created['id']}")
    assert secret not in listed.text + shown.text
    assert shown.json() == {name: created[name] for name in created if name != "key"}
    assert shown.json() in listed.json()["items"]


async def test_the_list_goes_page_by_page_newest_first(client: httpx2.AsyncClient) -> None:
    made = [(await create(client, name=str(number)))["id"] for number in range(4)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get(PATH, params={"limit": "2"} | cursor)).json()
        seen += [key["id"] for key in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == sorted(seen, reverse=True)
    assert set(made) < set(seen)
    assert len(seen) == 5  # the admin's own, too


async def test_a_revoked_key_is_refused_and_revoking_it_again_is_no_error(
    client: httpx2.AsyncClient, one: Replica
) -> None:
    created = await create(client)
    credential = created["key"].encode()
    assert await one.accepts(credential)
    url = f"{PATH}/{created['id']}"
    first = await client.delete(url)
    assert (first.status_code, first.content) == (204, b"")
    await one.news()
    assert not await one.accepts(credential)
    revoked_at = (await client.get(url)).json()["revoked_at"]
    assert revoked_at is not None
    assert (await client.delete(url)).status_code == 204
    assert (await client.get(url)).json()["revoked_at"] == revoked_at


@pytest.mark.parametrize("key_id", [NOBODY, "nonsense", "%0A", "a" * 300])
async def test_an_unknown_key_is_not_found(client: httpx2.AsyncClient, key_id: str) -> None:
    for method in ("GET", "DELETE"):
        answer = await client.request(method, f"{PATH}/{key_id}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_foreign_key_is_not_found_and_not_revoked(
    client: httpx2.AsyncClient, line: Connection, one: Replica
) -> None:
    await new_org(line, "other")
    foreign = await new_key(line, "other")

    client.headers["X-Request-Id"] = "same"
    for method in ("GET", "DELETE"):
        theirs = await client.request(method, f"{PATH}/{foreign.key_id}")
        absent = await client.request(method, f"{PATH}/{NOBODY}")
        assert theirs.status_code == absent.status_code == 404
        assert theirs.json() | {"timestamp": ""} == absent.json() | {"timestamp": ""}
    assert await one.accepts(spelt(foreign))
    assert (await client.get("/api/v1/orgs/other/api-keys")).status_code == 404


@pytest.mark.parametrize("scopes", [{Scope.READ}, {Scope.SUBMIT, Scope.READ}])
async def test_only_an_admin_may(
    client: httpx2.AsyncClient, line: Connection, scopes: set[Scope]
) -> None:
    modest = bearer((await new_key(line, scopes=scopes)).text)
    for method, path in (
        ("POST", PATH),
        ("GET", PATH),
        ("GET", f"{PATH}/{NOBODY}"),
        ("DELETE", f"{PATH}/{NOBODY}"),
    ):
        answer = await client.request(method, path, headers=modest)
        assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


async def test_whatever_is_wrong_with_a_credential_is_answered_alike(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    good = await new_key(line, scopes=ALL_SCOPES)
    expired = await new_key(line, scopes=ALL_SCOPES, seconds_to_live=-1)
    wrong = f"cck_{good.key_id}_{tenants.mint().secret.decode()}"
    del client.headers["Authorization"]
    answers = [
        await client.get(PATH, headers={"X-Request-Id": "same"} | headers)
        for headers in (
            {},
            bearer(tenants.mint().text),
            bearer(expired.text),
            bearer(wrong),
            bearer("nonsense"),
            bearer(token()),
            {"X-Api-Key": wrong},
            {"Authorization": "Basic YTpi"},
        )
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    bodies = [answer.json() for answer in answers]
    assert all(bodies[0] == body | {"timestamp": bodies[0]["timestamp"]} for body in bodies)


async def test_a_key_cannot_grant_what_its_maker_lacks(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    clerk = bearer((await new_key(line, scopes={Scope.ADMIN, Scope.READ})).text)
    for wanted in ({"scopes": ["submit"]}, {"scopes": ["read", "submit"]}, {}):
        answer = await client.post(PATH, json={"name": "x"} | wanted, headers=clerk)
        assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
        assert "submit" in answer.json()["detail"]
    answer = await client.post(PATH, json={"name": "x", "scopes": ["read"]}, headers=clerk)
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "x", "user": "a b"}, "user"),
        ({"name": "x", "user": "ada\n"}, "user"),
        ({"name": "x", "user": ""}, "user"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "scopes": ["root"]}, "scopes"),
        ({"name": "x", "expires_in_seconds": 0}, "expires_in_seconds"),
        ({"name": "x", "expires_in_seconds": 10**12}, "expires_in_seconds"),
        ({"name": "x", "rate_limit": {"requests": 0, "seconds": 1}}, "rate_limit"),
        ({"name": "x", "rate_limit": {"requests": 1}}, "seconds"),
        ({"name": "x", "expires": 60}, "expires"),
    ],
)
async def test_a_body_that_describes_no_key_is_refused_by_field(
    client: httpx2.AsyncClient, body: dict[str, Any], field: str
) -> None:
    answer = await client.post(PATH, json=body)
    assert answer.status_code in (400, 422)
    assert field in answer.text


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "cursor=x", "page=2", "limit=1&limit=2"]
)
async def test_a_query_that_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, query: str
) -> None:
    answer = await client.get(f"{PATH}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


async def test_an_admins_token_makes_keys_for_its_user_and_a_service_must_name_one(
    settings: Settings, line: Connection
) -> None:
    issuers = (
        secret_issuer(),
        secret_issuer(audience="robots", kind="service", secret="r" * 32),
    )
    async with served(replace(settings, jwt_issuers=issuers)) as (client, _):
        admin = bearer(token(claims=claims_of(sub="ada", scope="admin read submit")))
        robot = bearer(
            token("r" * 32, claims=claims_of(aud="robots", scope="admin read submit", bot="7"))
        )
        made = await client.post(PATH, json={"name": "x"}, headers=admin)
        assert made.json()["user"] == "ada"
        refused = await client.post(PATH, json={"name": "x"}, headers=robot)
        assert refused.status_code == 422
        assert refused.json()["details"][0]["field"] == "user"
        named = await client.post(PATH, json={"name": "x", "user": "bot"}, headers=robot)
        assert named.json()["user"] == "bot"


async def test_an_organisation_that_only_tokens_know_has_no_keys(
    settings: Settings, line: Connection
) -> None:
    path = "/api/v1/orgs/nowhere/api-keys"
    async with served(replace(settings, jwt_issuers=(secret_issuer(),))) as (client, _):
        admin = bearer(token(claims=claims_of(org="nowhere", scope="admin read submit")))
        assert (await client.get(path, headers=admin)).json() == {"items": [], "next": None}
        made = await client.post(path, json={"name": "x"}, headers=admin)
        assert made.status_code == 404
