"""The document says what the server does: valid, whole, and nothing that is not so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import msgspec
from openapi_spec_validator import validate

from coatcheck.core import Engine
from coatcheck.http.app import create_app
from coatcheck.http.context import open_server_context
from coatcheck.http.openapi import build_document
from coatcheck.http.request import Request
from coatcheck.http.response import Response
from coatcheck.http.routing import Access, RequestBody, Route
from coatcheck.settings import Settings
from tests.all_products import SURFACES


async def test_the_document_is_valid_openapi(client: httpx2.AsyncClient) -> None:
    document = await read_document(client)
    assert document["openapi"].startswith("3.1")
    validate(document)


async def test_the_document_holds_every_route_and_nothing_else(
    client: httpx2.AsyncClient, settings: Settings
) -> None:
    document = await read_document(client)
    documented = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    served = {
        (route.path.replace(":path}", "}"), method)
        for route in await served_operations(settings)
        for method in route.methods
    }
    assert documented == served


async def test_each_operation_has_a_name_of_its_own_a_summary_and_says_who_may_call(
    client: httpx2.AsyncClient, settings: Settings
) -> None:
    document = await read_document(client)
    schemes = set(document["components"]["securitySchemes"])
    described = list(operations_of(document))
    names = [route["operationId"] for _, _, route in described]
    assert len(set(names)) == len(names)
    open_paths = {
        route.path.replace(":path}", "}")
        for route in await served_operations(settings)
        if route.access is Access.OPEN
    }
    for path, method, route in described:
        where = f"{method} {path}"
        assert route["summary"].endswith((".", "?")), where
        assert route["tags"], where
        assert all(set(wanted) <= schemes for wanted in route["security"]), where
        assert (route["security"] == []) == (path in open_paths), where
        assert ("401" in route["responses"]) == (path not in open_paths), where


async def test_every_parameter_and_answer_is_described(client: httpx2.AsyncClient) -> None:
    document = await read_document(client)
    for path, method, route in operations_of(document):
        where = f"{method} {path}"
        in_path = {each["name"] for each in route["parameters"] if each["in"] == "path"}
        assert in_path == {part.split("}")[0] for part in path.split("{")[1:]}, where
        for parameter in route["parameters"]:
            assert parameter["description"], f"{where}: {parameter['name']}"
        for status, answer in route["responses"].items():
            assert answer["description"], f"{where}: {status}"
            assert "X-Request-Id" in answer["headers"], f"{where}: {status}"


async def test_what_is_answered_is_what_is_documented(client: httpx2.AsyncClient) -> None:
    document = await read_document(client)
    for path, method, route in operations_of(document):
        if method != "get" or "{" in path:
            continue
        answer = await client.get(path)
        documented = route["responses"][str(answer.status_code)]
        [media_type] = documented["content"]
        assert answer.headers["Content-Type"].startswith(media_type)
        reference = documented["content"][media_type]["schema"].get("$ref")
        if reference is not None:
            schema = document["components"]["schemas"][reference.rpartition("/")[2]]
            assert set(answer.json()) == set(schema["properties"])


async def test_rate_limits_are_declared_wherever_requests_are_counted(
    client: httpx2.AsyncClient,
) -> None:
    document = await read_document(client)
    names = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit"}
    names |= {"RateLimit-Policy"}
    assert set(document["components"]["headers"]) == names
    for path, method, route in operations_of(document):
        for status, answer in route["responses"].items():
            declared = names.intersection(answer["headers"])
            counted = bool(route["security"]) and status not in ("401", "431")
            assert declared == (names if counted else set()), (method, path, status)


async def test_problems_are_documented_with_the_names_they_have_on_the_wire(
    client: httpx2.AsyncClient,
) -> None:
    document = await read_document(client)
    problem = document["components"]["schemas"]["Problem"]
    assert set(problem["required"]) == set((await client.get("/api/v1/nothing")).json())


async def read_document(client: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    document: dict[str, Any] = answer.json()
    return document


def operations_of(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield path, method, route


async def served_operations(settings: Settings) -> Sequence[Route]:
    async with (
        await Engine.connect(settings) as engine,
        open_server_context(settings, engine) as parts,
    ):
        return create_app(parts, SURFACES).routes


class RawBody(msgspec.Struct, kw_only=True):
    """A body with JSON that is passed on as it came."""

    settings: msgspec.Raw = msgspec.Raw(b"{}")
    name: str


async def test_a_body_may_have_a_default_of_raw_json() -> None:
    async def answer(_: Request) -> Response:
        raise AssertionError("only its description is asked for")

    route = Route(
        methods=["POST"],
        path="/raw",
        name="raw",
        tag="raw",
        summary="Pass JSON on.",
        body=RequestBody("Anything.", RawBody),
        responses=(),
        handler=answer,
    )
    described = build_document([route], version="1")["components"]["schemas"]["RawBody"]
    assert described["properties"] == {"settings": {}, "name": {"type": "string"}}
    assert described["required"] == ["name"]
    assert described["description"] == inspect.getdoc(RawBody)
