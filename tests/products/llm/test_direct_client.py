"""What goes straight to the targets: to which of several, and what is said when none answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
import pytest_asyncio

from coatcheck.domain.tenants import Scope
from coatcheck.products.llm import direct_client
from coatcheck.settings.targets import LlmTarget
from examples.ollama_upstream import Fault, Model, OllamaUpstream
from tests.databases import Databases
from tests.deployment import Deployment, bearer

pytestmark = pytest.mark.asyncio(loop_scope="module")

EMBEDDER = Model("embedder:latest", ("embedding",))


class Pair:
    """Two targets: one has ``left``, the other ``right``, and both have ``embedder``."""

    def __init__(self, deployment: Deployment, left: OllamaUpstream, right: OllamaUpstream) -> None:
        self.deployment = deployment
        self.left = left
        self.right = right


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    async with (
        databases.fresh() as dsn,
        OllamaUpstream(["left", EMBEDDER], token="one", max_loaded=3) as left,
        OllamaUpstream(["right", EMBEDDER], token="other", max_loaded=3) as right,
    ):
        targets = (LlmTarget("left", left.url, "one"), LlmTarget("right", right.url, "other"))
        folder = tmp_path_factory.mktemp("deployment")
        async with Deployment(dsn, folder, llm_targets=targets) as deployment:
            yield Pair(deployment, left, right)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which target has which models is asked every time: tests change it."""
    monkeypatch.setattr(direct_client, "LISTED_SECONDS", 0.0)


@pytest_asyncio.fixture(loop_scope="module")
async def away(pair: Pair) -> AsyncIterator[AsyncExitStack]:
    """Sends targets away; they come back after the test."""
    async with AsyncExitStack() as returning:
        yield returning


async def send_away(returning: AsyncExitStack, upstream: OllamaUpstream) -> None:
    await upstream.go_away()
    returning.push_async_callback(upstream.come_back)


def names(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["models"]]


async def test_the_models_of_all_targets_are_listed_once_each(pair: Pair) -> None:
    tags = await pair.deployment.http.get("/api/tags")
    assert names(tags) == ["left:latest", "embedder:latest", "right:latest"]
    models = (await pair.deployment.http.get("/v1/models")).json()
    assert [each["id"] for each in models["data"]] == names(tags)


async def test_what_is_loaded_anywhere_is_shown(pair: Pair) -> None:
    async with httpx2.AsyncClient(base_url=pair.right.url, headers=bearer("other")) as direct:
        await direct.post("/api/generate", json={"model": "right"})
    assert "right:latest" in names(await pair.deployment.http.get("/api/ps"))


async def test_a_target_that_is_away_is_left_out(pair: Pair, away: AsyncExitStack) -> None:
    await send_away(away, pair.left)
    assert names(await pair.deployment.http.get("/api/tags")) == ["right:latest", "embedder:latest"]
    assert (await pair.deployment.http.get("/api/version")).json()["version"]
    shown = await pair.deployment.http.post("/api/show", json={"model": "right"})
    assert shown.json()["capabilities"]


@pytest.mark.parametrize("kind", ["error", "garbage"])
async def test_a_target_that_talks_nonsense_is_left_out(
    pair: Pair, kind: Literal["error", "garbage"]
) -> None:
    pair.left.plan(Fault(kind, path="/api/tags"))
    assert names(await pair.deployment.http.get("/api/tags")) == ["right:latest", "embedder:latest"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/tags"),
        ("GET", "/api/ps"),
        ("GET", "/api/version"),
        ("POST", "/api/show"),
        ("POST", "/api/embed"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/left"),
    ],
)
async def test_when_all_are_away_the_caller_is_told_when_to_come_again(
    pair: Pair, away: AsyncExitStack, method: str, path: str
) -> None:
    await send_away(away, pair.left)
    await send_away(away, pair.right)
    body = {"model": "left", "input": "x"} if method == "POST" else None
    answer = await pair.deployment.http.request(method, path, json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (503, "target_unreachable")
    assert int(answer.headers["Retry-After"]) > 0
    assert problem["error"]


async def test_a_model_is_asked_for_where_it_is(pair: Pair) -> None:
    for name, upstream in (("left", pair.left), ("right", pair.right)):
        before = upstream.seen.paths["/api/show"]
        shown = await pair.deployment.http.post("/api/show", json={"model": name})
        assert shown.status_code == 200
        assert upstream.seen.paths["/api/show"] == before + 1
    older = await pair.deployment.http.post("/api/show", json={"name": "right"})
    assert older.status_code == 200


async def test_embeddings_go_on_elsewhere_when_a_target_is_lost(pair: Pair) -> None:
    """It lists its models, and is gone when it is asked."""
    pair.left.plan(Fault("cut", path="/api/embed"))
    embedded = await pair.deployment.http.post(
        "/api/embed", json={"model": "embedder", "input": "one"}
    )
    assert embedded.status_code == 200
    assert len(embedded.json()["embeddings"]) == 1
    assert pair.right.seen.paths["/api/embed"] == 1


async def test_the_body_is_sent_as_it_was_written(pair: Pair) -> None:
    body = b'{"input": [ "one" ], "model":"embedder","truncate":false,"unheard_of":1.50}'
    assert (await pair.deployment.http.post("/api/embed", content=body)).status_code == 200
    sent = pair.left.seen.bodies("/api/embed")[-1]
    assert b'"input":[ "one" ]' in sent
    assert b'"unheard_of":1.50' in sent
    assert pair.left.seen.requests[-1].headers["authorization"] == "Bearer one"


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault("error", status=500, times=2), 502, "target_error"),
        (Fault("error", status=401, times=2), 502, "target_refused_us"),
        (Fault("error", status=302, times=2), 502, "target_redirects"),
        (Fault("error", status=400, times=2, message="not so"), 400, "invalid_request"),
        (
            Fault("error", status=503, times=2, headers={"Retry-After": "17"}),
            503,
            "target_busy",
        ),
    ],
)
async def test_what_a_target_answers_instead_is_told(
    pair: Pair, fault: Fault, status: int, code: str
) -> None:
    fault.path = "/api/show"
    pair.right.plan(fault)
    answer = await pair.deployment.http.post("/api/show", json={"model": "right"})
    pair.right.clear_faults()
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers.get("Retry-After") == ("17" if status == 503 else None)


async def test_an_answer_without_end_is_not_taken_in(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_client, "ANSWER_BYTES_MAX", 8_192)
    many = ["one"] * 50
    answer = await pair.deployment.http.post(
        "/api/embed", json={"model": "embedder", "input": many}
    )
    assert (answer.status_code, answer.json()["code"]) == (502, "answer_too_large")


async def test_a_target_that_says_nothing_is_not_waited_for_without_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_client, "POST_SECONDS_MAX", 0.2)
    for upstream in (pair.left, pair.right):
        upstream.plan(Fault("hang", path="/api/embed"))
    answer = await pair.deployment.http.post(
        "/api/embed", json={"model": "embedder", "input": "one"}
    )
    for upstream in (pair.left, pair.right):
        upstream.clear_faults()
    assert (answer.status_code, answer.json()["code"]) == (502, "target_silent")


@pytest.mark.parametrize("path", ["/api/show", "/api/embed", "/api/embeddings"])
@pytest.mark.parametrize("body", [b"{}", b'{"model": 5}', b"[]", b""])
async def test_a_request_without_a_model_is_refused_here(
    pair: Pair, path: str, body: bytes
) -> None:
    answer = await pair.deployment.http.post(path, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_scopes_hold(pair: Pair) -> None:
    reader = bearer(await pair.deployment.create_key(scopes=[Scope.READ]))
    http = pair.deployment.http
    assert (await http.get("/api/tags", headers=reader)).status_code == 200
    embed: Any = {"model": "embedder", "input": "one"}
    assert (await http.post("/api/embed", json=embed, headers=reader)).status_code == 403
    assert (await http.post("/api/chat", json={"model": "left"}, headers=reader)).status_code == 403
    submitter = bearer(await pair.deployment.create_key(scopes=[Scope.SUBMIT]))
    assert (await http.post("/api/embed", json=embed, headers=submitter)).status_code == 200
    assert (await http.get("/v1/models", headers=submitter)).status_code == 403


@pytest.mark.asyncio(loop_scope="function")
async def test_without_a_target_it_is_said_what_to_set(dsn: str, tmp_path: Path) -> None:
    chat = {"model": "left", "messages": [{"role": "user", "content": "Hello"}]}
    async with Deployment(dsn, tmp_path) as deployment:
        for method, path in (
            ("GET", "/api/tags"),
            ("GET", "/api/version"),
            ("POST", "/api/show"),
            ("POST", "/api/chat"),
            ("POST", "/api/generate"),
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/left"),
        ):
            body = chat if method == "POST" else None
            problem = (await deployment.http.request(method, path, json=body)).json()
            assert (problem["status"], problem["code"]) == (404, "llm_not_configured"), path
            assert "COATCHECK_LLM_URL" in str(problem["error"])
