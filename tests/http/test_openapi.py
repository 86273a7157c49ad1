from __future__ import annotations

import httpx2
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Route

from coatcheck.control.app import create_app
from coatcheck.engine import Engine
from coatcheck.settings import Settings


async def test_the_document_is_valid_openapi(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    validate(document)


async def test_the_document_holds_every_route_and_nothing_else(
    client: httpx2.AsyncClient, settings: Settings
) -> None:
    document = (await client.get("/openapi.json")).json()
    documented = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    async with await Engine.connect(settings) as engine:
        app = create_app(settings, engine)
    assert documented == routes(app)


def routes(app: Starlette) -> set[tuple[str, str]]:
    found = set()
    for route in app.routes:
        assert isinstance(route, Route)
        found |= {(route.path, method) for method in (route.methods or set()) - {"HEAD"}}
    return found


async def test_what_is_answered_is_what_is_documented(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        answer = await client.get(path)
        documented = methods["get"]["responses"][str(answer.status_code)]
        [media_type] = documented["content"]
        assert answer.headers["Content-Type"].startswith(media_type)
        reference = documented["content"][media_type]["schema"].get("$ref")
        if reference is not None:
            schema = document["components"]["schemas"][reference.rpartition("/")[2]]
            assert set(answer.json()) == set(schema["properties"])


async def test_problems_are_documented_with_the_names_they_have_on_the_wire(
    client: httpx2.AsyncClient,
) -> None:
    document = (await client.get("/openapi.json")).json()
    problem = document["components"]["schemas"]["Problem"]
    assert set(problem["required"]) == set((await client.get("/nothing")).json())
