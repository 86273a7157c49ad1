"""Problems in which clients of other APIs find the error that they look for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openai
import pytest

from coatcheck.domain import errors
from coatcheck.domain.tenants import Scope
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.openapi import build_document
from coatcheck.http.problem_formats import PROBLEM_DOCUMENT, ProblemFormat
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response
from coatcheck.http.routing import Route
from coatcheck.products.llm.problem_formats import OLLAMA, OPENAI, UNROUTED_FORMATS
from tests.contract.raw import exchange
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


async def fail(request: Request) -> Response:
    raise ERRORS[request.params["name"]]


async def refuse(request: Request, route: Route) -> RawHeaders:
    if request.header(b"authorization") is None:
        raise errors.Unauthenticated
    return ()


def failing_app(written: ProblemFormat) -> Dispatcher:
    route = Route(
        methods=["POST"],
        path="/v1/{name}",
        name="fail",
        summary="",
        handler=fail,
        responses=[],
        tag="tests",
        access=Scope.SUBMIT,
        problem_format=written,
    )
    return Dispatcher([route], refuse)


@pytest.mark.parametrize("name", ERRORS)
async def test_ollamas_clients_find_the_text_of_a_problem(name: str) -> None:
    async with serving(failing_app(OLLAMA)) as client:
        answer = await client.post(f"/v1/{name}", headers={"Authorization": "Bearer x"})
    problem = answer.json()
    assert answer.headers["Content-Type"] == "application/json"
    assert problem["error"] == problem["detail"] == problem["message"]
    assert "inside" not in answer.text


def several_products() -> Dispatcher:
    """Routes of several products, each in its own format."""
    formats: Mapping[str, ProblemFormat] = {
        "/api/chat": OLLAMA,
        "/api/v1/orgs/{name}": PROBLEM_DOCUMENT,
        "/jobs/{name}": PROBLEM_DOCUMENT,
        "/v1/chat/completions": OPENAI,
        "/v1/graphs/{name}": PROBLEM_DOCUMENT,
    }
    routes = [
        Route(
            methods=["POST"],
            path=path,
            name=f"route{number}",
            summary="",
            handler=fail,
            responses=[],
            tag="tests",
            access=Scope.SUBMIT,
            problem_format=written,
        )
        for number, (path, written) in enumerate(formats.items())
    ]
    return Dispatcher(routes, refuse, unrouted_formats=UNROUTED_FORMATS)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/pull", 404), ("/api/blobs/sha256:1", 404), ("/api", 404), ("/api/chat", 405)],
)
async def test_ollamas_clients_find_the_text_where_nothing_is_served_either(
    path: str, status: int
) -> None:
    async with serving(several_products()) as client:
        answer = await client.get(path)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["error"] == answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/audio/speech", 404),
        ("/v1/chat/completions", 405),
        ("/v1/chat", 404),
        ("/v1", 404),
        ("/v1/v1/chat/completions", 404),
        ("/chat/completions", 404),
        ("/nothing", 404),
        ("/", 404),
    ],
)
async def test_a_path_that_no_product_claims_is_refused_in_openais_words(
    path: str, status: int
) -> None:
    async with serving(several_products()) as client:
        answer = await client.get(path)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] == answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/graphs", 404),
        ("/v1/graphs/call", 405),
        ("/v1/graphs/call/more", 404),
        ("/api/v1/nothing", 404),
        ("/api/v1", 404),
        ("/jobs", 404),
        ("/jobs/1", 405),
    ],
)
async def test_a_path_below_another_products_prefix_stays_a_problem_document(
    path: str, status: int
) -> None:
    async with serving(several_products()) as client:
        answer = await client.get(path)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "error" not in answer.json()


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/v1/chat/completions", "application/json"),
        ("/api/chat", "application/json"),
        ("/jobs/1", "application/problem+json"),
    ],
)
async def test_a_page_that_would_run_an_answer_is_refused_in_the_routes_format(
    path: str, media_type: str
) -> None:
    async with serving(several_products()) as client:
        answer = await client.post(path, headers={"Sec-Fetch-Dest": "script"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (403, media_type)
    assert ("error" in answer.json()) == (media_type == "application/json")


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/v1/chat/completions", "application/json"),
        ("/nothing", "application/json"),
        ("/api/chat", "application/json"),
        ("/jobs/1", "application/problem+json"),
        ("", "application/problem+json"),
    ],
)
async def test_what_the_server_refuses_by_itself_has_the_format_of_the_path_that_was_asked_for(
    path: str, media_type: str
) -> None:
    """Before any route is looked for: the request is refused while its head is read."""
    async with serving(several_products()) as client:
        url = client.base_url
        line = b"POST %s HTTP/1.1\r\nHost: a\r\n" % path.encode() if path else b""
        many = b"".join(b"X-Header-%d: 1\r\n" % number for number in range(2_000))
        answer = await exchange(str(url.host), url.port or 0, (line or b"\x01") + many + b"\r\n")
    assert answer.status == (431 if path else 400)
    assert answer.header("content-type") == media_type
    assert (b'"error":' in answer.body) == (media_type == "application/json")


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
    async with serving(failing_app(OPENAI)) as client:
        answer = await client.post(f"/v1/{name}", headers={"Authorization": "Bearer x"})
    problem = answer.json()
    assert answer.headers["Content-Type"] == "application/json"
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
        serving(failing_app(OPENAI)) as client,
        openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="x", max_retries=0) as package,
    ):
        with pytest.raises(raised) as error:
            await package.post(f"/{name}", cast_to=object)
    assert error.value.code
    assert error.value.type


@pytest.mark.parametrize("written", [OLLAMA, OPENAI])
async def test_an_unauthenticated_caller_is_answered_in_the_same_format(
    written: ProblemFormat,
) -> None:
    async with serving(failing_app(written)) as client:
        problem = (await client.post("/v1/body")).json()
    assert problem["status"] == 401
    said = problem["error"] if written is OLLAMA else problem["error"]["message"]
    assert said == problem["detail"]


def _schema_of_401(document: Mapping[str, Any], media_type: str) -> str:
    answer = document["paths"]["/v1/{name}"]["post"]["responses"]["401"]
    reference: str = answer["content"][media_type]["schema"]["$ref"]
    return reference.rpartition("/")[2]


def test_the_document_shows_each_operations_problems_as_they_are() -> None:
    for written in (PROBLEM_DOCUMENT, OLLAMA, OPENAI):
        document = build_document(failing_app(written).routes, version="1")
        name = _schema_of_401(document, written.media_type)
        assert name == written.body.__name__
        shown = document["components"]["schemas"][name]["properties"]
        assert ("error" in shown) == (written is not PROBLEM_DOCUMENT)


async def test_without_a_registered_format_every_path_answers_with_problem_documents() -> None:
    async with serving(Dispatcher([], refuse)) as client:
        for path in ("/", "/v1/models", "/api/tags", "/nothing"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert "error" not in answer.json()
