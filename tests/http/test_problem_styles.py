"""Problems in which clients of other APIs find the error that they look for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openai
import pytest

from coatcheck.control.call import Call, ProblemStyle
from coatcheck.control.dispatch import Dispatcher
from coatcheck.control.openapi import build_document
from coatcheck.control.operations import Operation
from coatcheck.control.reply import RawHeaders, Reply
from coatcheck.domain import errors
from coatcheck.domain.identity import Scope
from tests.http.conftest import serving

ERRORS: Mapping[str, Exception] = {
    "body": errors.InvalidParameter("messages[0].role", "is missing", "body"),
    "scope": errors.MissingScope("lacks 'submit'"),
    "absent": errors.NotFound("inside"),
    "large": errors.BodyTooLarge(1024),
    "rate": errors.RateLimited(7, []),
    "away": errors.DatabaseUnavailable("inside"),
    "surprise": RuntimeError("inside"),
}


async def fail(call: Call) -> Reply:
    raise ERRORS[call.params["name"]]


async def refuse(call: Call, operation: Operation) -> RawHeaders:
    if call.header(b"authorization") is None:
        raise errors.Unauthenticated
    return ()


def failing_app(style: ProblemStyle) -> Dispatcher:
    operation = Operation(
        methods=["POST"],
        path="/v1/{name}",
        name="fail",
        summary="",
        handler=fail,
        answers=[],
        tag="tests",
        access=Scope.SUBMIT,
        problem_style=style,
    )
    return Dispatcher([operation], refuse)


@pytest.mark.parametrize("name", ERRORS)
async def test_ollamas_clients_find_the_text_of_a_problem(name: str) -> None:
    async with serving(failing_app("ollama")) as client:
        answer = await client.post(f"/v1/{name}", headers={"Authorization": "Bearer x"})
    problem = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["error"] == problem["detail"] == problem["message"]
    assert "inside" not in answer.text


async def test_ollamas_clients_find_the_text_where_nothing_is_served_either() -> None:
    async with serving(failing_app("plain")) as client:
        asked = [await client.post(path) for path in ("/api/pull", "/api/v1/pull", "/api/v1")]
    ollamas, *ours = (answer.json() for answer in asked)
    assert ollamas["error"] == ollamas["detail"]
    assert all("error" not in problem for problem in ours)


@pytest.mark.parametrize(
    ("name", "status", "kind", "code", "param"),
    [
        ("body", 400, "invalid_request_error", "invalid_parameter", "messages[0].role"),
        ("scope", 403, "permission_error", "missing_scope", None),
        ("absent", 404, "not_found_error", "not_found", None),
        ("large", 413, "invalid_request_error", "body_too_large", None),
        ("rate", 429, "rate_limit_error", "rate_limited", None),
        ("away", 503, "api_error", "database_unavailable", None),
        ("surprise", 500, "api_error", "internal", None),
    ],
)
async def test_openais_clients_find_an_error_of_their_own_shape(
    name: str, status: int, kind: str, code: str, param: str | None
) -> None:
    async with serving(failing_app("openai")) as client:
        answer = await client.post(f"/v1/{name}", headers={"Authorization": "Bearer x"})
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert problem["error"] == {
        "message": problem["detail"],
        "type": kind,
        "param": param,
        "code": code,
    }


@pytest.mark.parametrize(
    ("name", "raised"),
    [
        ("body", openai.BadRequestError),
        ("scope", openai.PermissionDeniedError),
        ("absent", openai.NotFoundError),
        ("rate", openai.RateLimitError),
        ("surprise", openai.InternalServerError),
    ],
)
async def test_the_openai_package_raises_what_a_status_means_to_it(
    name: str, raised: type[openai.APIStatusError]
) -> None:
    async with (
        serving(failing_app("openai")) as client,
        openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="x", max_retries=0) as package,
    ):
        with pytest.raises(raised) as error:
            await package.post(f"/{name}", cast_to=object)
    assert error.value.code
    assert error.value.type


@pytest.mark.parametrize("style", ["ollama", "openai"])
async def test_who_is_not_let_in_is_told_so_in_the_same_style(style: ProblemStyle) -> None:
    async with serving(failing_app(style)) as client:
        problem = (await client.post("/v1/body")).json()
    assert problem["status"] == 401
    said = problem["error"] if style == "ollama" else problem["error"]["message"]
    assert said == problem["detail"]


def _schema_of_401(document: Mapping[str, Any]) -> str:
    answer = document["paths"]["/v1/{name}"]["post"]["responses"]["401"]
    reference: str = answer["content"]["application/problem+json"]["schema"]["$ref"]
    return reference.rpartition("/")[2]


def test_the_document_shows_each_operations_problems_as_they_are() -> None:
    shown = {}
    for style in ("plain", "ollama", "openai"):
        document = build_document(failing_app(style).operations, version="1")
        name = _schema_of_401(document)
        shown[style] = "error" in document["components"]["schemas"][name]["properties"]
    assert shown == {"plain": False, "ollama": True, "openai": True}
