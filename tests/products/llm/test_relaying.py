"""A caller who waits for a job: what they are sent, and what becomes of it when somebody leaves."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import httpx2
import msgspec
import ollama
import openai
import pytest
import pytest_asyncio

from coatcheck.core.watcher import OutputTail
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.products.llm import output_stream
from coatcheck.products.llm.openai import native
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.logs import JsonFormatter
from examples.ollama_upstream import Fault
from tests.databases import Databases
from tests.deployment import Server, bearer
from tests.products.llm.talking import Talking, talking
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "llama3.2"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me"}]}
ASKED: list[Any] = [{"role": "user", "content": "Tell me"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talk(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Talking]:
    async with (
        databases.fresh() as dsn,
        talking(dsn, tmp_path_factory.mktemp("deployment")) as opened,
    ):
        opened.deployment.start_maintenance()
        yield opened


@pytest.fixture
def http(talk: Talking) -> httpx2.AsyncClient:
    return talk.deployment.http


@pytest.fixture
def hanging(talk: Talking) -> None:
    """The next answer says three words, and the others only when ``go_on`` is called."""
    talk.upstream.plan(Fault("hang", path="/api/chat", after_tokens=3))


@pytest.fixture
def silent(talk: Talking) -> None:
    """The next answer says nothing until ``go_on`` is called."""
    talk.upstream.plan(Fault("hang", path="/api/chat"))


def keyed() -> dict[str, str]:
    return {"Idempotency-Key": secrets.token_hex(8)}


def go_on(talk: Talking) -> None:
    talk.upstream.clear_faults()


async def done(talk: Talking, job: str) -> dict[str, Any]:
    answer = await talk.deployment.http.get(f"/jobs/{job}", params={"wait": "60"})
    told: dict[str, Any] = answer.json()
    assert told["state"] == "done", told
    return told


async def nobody_waits(talk: Talking) -> None:
    """Return when nothing is left on the server of those who were there."""

    async def all_have_left() -> bool:
        return talk.deployment.engine.waits == 0

    await eventually_async(all_have_left, "nobody waits for a job")


class Reader:
    """One caller's stream, read line by line."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.job = response.headers["X-Job-Id"]
        self._lines = response.aiter_lines()

    async def lines(self, count: int) -> list[str]:
        return [await anext(self._lines) for _ in range(count)]

    async def rest(self) -> list[str]:
        return [line async for line in self._lines]

    async def events(self, count: int) -> list[tuple[str, Any]]:
        """So many Server-Sent Events, each with its id; fewer, if there are no more."""
        events: list[tuple[str, Any]] = []
        last = ""
        while len(events) < count:
            line = await anext(self._lines, None)
            if line is None:
                break
            name, _, value = line.partition(": ")
            if name == "id":
                last = value
            elif name == "data":
                events.append((last, value if value == "[DONE]" else json.loads(value)))
        return events


@asynccontextmanager
async def streaming(
    http: httpx2.AsyncClient,
    path: str = "/api/chat",
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> AsyncIterator[Reader]:
    async with http.stream("POST", path, json=CHAT | fields, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield Reader(response)


def text_of(events: list[tuple[str, Any]]) -> str:
    chunks = [data for _, data in events if data != "[DONE]"]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def test_a_stream_that_broke_is_resumed_by_the_id_of_the_last_chunk(
    talk: Talking, http: httpx2.AsyncClient, hanging: None
) -> None:
    headers = keyed()
    async with streaming(http, "/v1/chat/completions", headers, stream=True) as reader:
        had = await reader.events(3)
        job = reader.job
    last_id, _ = had[-1]
    await nobody_waits(talk)
    go_on(talk)
    resumed = headers | {"Last-Event-ID": last_id}
    async with streaming(http, "/v1/chat/completions", resumed, stream=True) as reader:
        assert reader.job == job
        assert reader.response.headers["Idempotent-Replayed"] == "true"
        rest = await reader.events(1_000)
    assert rest[-1][1] == "[DONE]"
    assert "role" not in rest[0][1]["choices"][0]["delta"]
    whole = (await done(talk, job))["result"]["message"]["content"]
    assert text_of(had) + text_of(rest) == whole
    assert not talk.upstream.seen.requests[-1].aborted


async def test_a_stream_of_lines_is_resumed_by_the_ids_of_the_jobs_events(
    talk: Talking, http: httpx2.AsyncClient, hanging: None
) -> None:
    headers = keyed()
    async with streaming(http, headers=headers) as reader:
        had = await reader.lines(3)
        job = reader.job
    go_on(talk)
    await done(talk, job)
    events = (await http.get(f"/jobs/{job}/events")).text.split("\n\n")
    (third,) = [each for each in events if each.startswith("id: ") and had[2] in each]
    last_id = third.partition("\n")[0].removeprefix("id: ")
    async with streaming(http, f"/api/chat?after={last_id}", headers) as reader:
        rest = await reader.rest()
    async with streaming(http, headers=headers) as reader:
        assert await reader.rest() == had + rest


async def test_two_clients_watch_one_job_and_a_third_comes_late(
    talk: Talking, http: httpx2.AsyncClient, hanging: None
) -> None:
    headers = keyed()
    async with streaming(http, headers=headers) as first, streaming(http, headers=headers) as other:
        assert first.job == other.job
        began = await first.lines(3)
        assert await other.lines(3) == began
        go_on(talk)
        ended = await first.rest()
        assert await other.rest() == ended
    async with streaming(http, headers=headers) as late:
        assert await late.rest() == began + ended
    assert json.loads(ended[-1])["done"] is True


async def test_who_does_not_want_to_wait_is_given_a_ticket(
    talk: Talking, http: httpx2.AsyncClient
) -> None:
    for path in ("/api/chat", "/v1/chat/completions"):
        answer = await http.post(path, json=CHAT, headers={"Prefer": "respond-async"})
        assert answer.status_code == 202
        assert answer.headers["Preference-Applied"] == "respond-async"
        assert answer.headers["X-Job-Id"] == answer.json()["job_id"]
        assert answer.headers["Location"] == f"/jobs/{answer.json()['job_id']}"
        await done(talk, answer.json()["job_id"])


async def test_who_waits_only_so_long_is_given_a_ticket_then(
    talk: Talking, http: httpx2.AsyncClient, silent: None
) -> None:
    answer = await http.post(
        "/api/chat", json=CHAT | {"stream": False}, headers={"Prefer": "wait=0.1"}
    )
    assert answer.status_code == 202
    go_on(talk)
    await done(talk, answer.json()["job_id"])


async def test_a_caller_who_leaves_takes_nothing_with_them(
    talk: Talking, http: httpx2.AsyncClient, silent: None
) -> None:
    headers = keyed()
    asking = asyncio.create_task(
        http.post("/api/chat", json=CHAT | {"stream": False}, headers=headers)
    )
    engine = talk.deployment.engine

    async def is_watched() -> bool:
        return engine.waits > 0

    await eventually_async(is_watched, "the job is waited for")
    asking.cancel()
    await nobody_waits(talk)
    go_on(talk)
    again = await http.post("/api/chat", json=CHAT | {"stream": False}, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json()["done"] is True


async def test_a_job_that_began_again_tells_those_who_heard_its_beginning(
    talk: Talking, http: httpx2.AsyncClient, hanging: None
) -> None:
    """The upstream is killed in the middle of an answer, and comes back."""
    headers = keyed()
    package = ollama.AsyncClient(host=talk.url(), headers=bearer(talk.deployment.key) | headers)
    other = talk.openai(default_headers=headers)
    by_ollama: list[str] = []
    by_openai: list[str] = []

    async def both_heard_the_beginning() -> bool:
        return len(by_ollama) == len(by_openai) == 3

    hearing = asyncio.gather(
        _hear_ollama(package, by_ollama), _hear_openai(other, by_openai), return_exceptions=True
    )
    await eventually_async(both_heard_the_beginning, "both heard the beginning")
    await talk.upstream.go_away()
    await talk.upstream.come_back()
    told, also_told = await hearing
    async with streaming(http, headers=headers) as reader:
        lines = await reader.rest()
        job = reader.job
    assert isinstance(told, ollama.ResponseError)
    assert isinstance(also_told, openai.APIError)
    assert by_ollama == by_openai
    assert job in told.error
    assert job in also_told.message
    assert also_told.code == "output_restarted"
    shown = await done(talk, job)
    assert shown["attempt"] == 1
    # Who comes now hears the second try alone, from its beginning to its end.
    said = "".join(json.loads(line)["message"]["content"] for line in lines)
    assert said == shown["result"]["message"]["content"]
    await other.close()


async def test_a_job_that_began_again_before_it_said_anything_just_goes_on(
    talk: Talking, http: httpx2.AsyncClient
) -> None:
    talk.upstream.plan(Fault("error", path="/api/chat", status=500))
    async with streaming(http) as reader:
        lines = await reader.rest()
    assert json.loads(lines[-1])["done"] is True
    assert (await done(talk, reader.job))["attempt"] == 2


async def test_who_asks_a_target_that_is_asleep_is_answered_when_it_wakes_up(
    talk: Talking, http: httpx2.AsyncClient
) -> None:
    await talk.upstream.go_away()
    headers = keyed()
    asking = asyncio.create_task(
        http.post("/api/chat", json=CHAT | {"stream": False}, headers=headers)
    )

    async def waits_for_the_target() -> dict[str, Any] | None:
        for job in (await http.get("/jobs", params={"limit": 1})).json()["items"]:
            shown: dict[str, Any] = (await http.get(job["urls"]["poll"])).json()
            if (shown["waiting"] or {}).get("reason") == "target_unreachable":
                return shown
        return None

    shown = await eventually_async(waits_for_the_target, "the job waits for its target")
    assert not asking.done()
    await talk.upstream.come_back()
    answer = await asking
    assert answer.headers["X-Job-Id"] == shown["job_id"]
    assert answer.json()["done"] is True
    assert (await done(talk, shown["job_id"]))["attempt"] == 1


async def test_nothing_of_what_is_said_is_logged(
    talk: Talking, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The upstream repeats the question at the beginning of its answer, so one word will do."""
    caplog.set_level(logging.DEBUG)
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    EVENTS.open(handler)
    messages = [{"role": "user", "content": "quartz"}]
    talk.upstream.plan(Fault("cut", path="/api/chat", after_tokens=5))
    async with streaming(http, messages=messages) as reader:
        assert "quartz" in "".join(await reader.rest())
    refused = {"model": "llava", "messages": messages, "tools": [{"type": "function"}]}
    assert (await http.post("/api/chat", json=refused)).status_code == 400
    unfit = {"model": MODEL, "messages": messages, "quartz": 1}
    assert (await http.post("/v1/chat/completions", json=unfit)).status_code == 400
    EVENTS.close()
    assert "/v1/chat/completions" in written.getvalue()
    assert "quartz" not in caplog.text + written.getvalue()


async def test_a_client_cannot_go_on_from_what_is_void(
    talk: Talking, http: httpx2.AsyncClient
) -> None:
    talk.upstream.plan(Fault("cut", path="/api/chat", after_tokens=3))
    headers = keyed()
    async with streaming(http, "/v1/chat/completions", headers, stream=True) as reader:
        had = await reader.events(3)
        job = reader.job
    await done(talk, job)
    resumed = headers | {"Last-Event-ID": had[-1][0]}
    async with streaming(http, "/v1/chat/completions", resumed, stream=True) as reader:
        ((_, only),) = await reader.events(1_000)
    assert only["error"]["code"] == "output_restarted"


async def test_a_failure_of_the_target_is_a_bad_gateway_and_is_not_tried_again_by_the_package(
    talk: Talking, http: httpx2.AsyncClient
) -> None:
    talk.upstream.plan(Fault("error", path="/api/chat", status=302))
    asked_before = talk.upstream.seen.paths["/api/chat"]
    async with talk.openai() as package:
        with pytest.raises(openai.InternalServerError) as failed:
            await package.chat.completions.create(model=MODEL, messages=ASKED)
    assert (failed.value.status_code, failed.value.code) == (502, "target_redirects")
    job = (await http.get(failed.value.response.headers["Location"])).json()
    assert (job["state"], job["error"]["code"]) == ("failed", "target_redirects")
    assert talk.upstream.seen.paths["/api/chat"] == asked_before + 1


async def test_a_cancelled_job_is_told_within_the_stream_or_by_the_status(
    talk: Talking, http: httpx2.AsyncClient, hanging: None
) -> None:
    headers = keyed()
    async with streaming(http, headers=headers) as reader:
        await reader.lines(3)
        whole = asyncio.create_task(
            http.post("/api/chat", json=CHAT | {"stream": False}, headers=headers)
        )
        assert (await http.post(f"/jobs/{reader.job}/cancel")).status_code in (200, 202)
        (last,) = await reader.rest()
    assert "error" in json.loads(last)
    answer = await whole
    assert (answer.status_code, answer.json()["code"]) == (409, "cancelled")
    again = await http.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "cancelled")
    go_on(talk)


@pytest_asyncio.fixture(loop_scope="module")
async def second(talk: Talking) -> Server:
    """A control plane of its own, to be stopped."""
    return await talk.deployment.start_server()


async def test_a_server_that_stops_says_that_the_job_goes_on(
    talk: Talking, http: httpx2.AsyncClient, second: Server, hanging: None
) -> None:
    headers = keyed()
    async with (
        streaming(second.http, headers=headers) as lines,
        streaming(second.http, "/v1/chat/completions", headers, stream=True) as events,
    ):
        await lines.lines(3)
        await events.events(3)
        whole = asyncio.create_task(
            second.http.post("/api/chat", json=CHAT | {"stream": False}, headers=headers)
        )
        engine = second.context.engine

        async def is_waited_for() -> bool:
            return engine.waits == 3

        await eventually_async(is_waited_for, "all three wait for the job")
        draining = asyncio.create_task(second.stop())
        (last,) = await lines.rest()
        ((_, event),) = await events.events(1_000)
    answer = await whole
    await draining
    job = lines.job
    assert job in json.loads(last)["error"]
    assert (event["error"]["code"], job in event["error"]["message"]) == ("server_stopping", True)
    assert (answer.status_code, answer.json()["code"]) == (503, "server_stopping")
    assert answer.headers["Location"] == f"/jobs/{job}"
    assert answer.headers["Retry-After"]
    go_on(talk)
    await done(talk, job)
    async with streaming(http, headers=headers) as reader:
        assert json.loads((await reader.rest())[-1])["done"] is True


async def test_a_caller_who_waits_long_is_sent_signs_of_life_that_clients_do_not_mind(
    talk: Talking, http: httpx2.AsyncClient, silent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_stream, "IDLE_SECONDS", 0.05)
    headers = keyed()
    package = ollama.AsyncClient(host=talk.url(), headers=bearer(talk.deployment.key) | headers)
    async with (
        http.stream("POST", "/api/chat", json=CHAT, headers=headers) as lines,
        http.stream(
            "POST", "/v1/chat/completions", json=CHAT | {"stream": True}, headers=headers
        ) as events,
    ):
        pieces = lines.aiter_raw()
        assert (await anext(pieces)).strip() == b""
        assert (await anext(events.aiter_lines())).startswith(":")
        reading = asyncio.create_task(_collect(package))
        go_on(talk)
        rest = b"".join([piece async for piece in pieces])
    parts = await reading
    assert parts[-1].done
    assert json.loads(rest.splitlines()[-1])["done"] is True


async def _hear_ollama(package: ollama.AsyncClient, heard: list[str]) -> None:
    async for part in await package.chat(MODEL, ASKED, stream=True):
        heard.append(part.message.content or "")  # noqa: PERF401 - it ends by raising


async def _hear_openai(package: openai.AsyncOpenAI, heard: list[str]) -> None:
    create = package.chat.completions.create
    async for chunk in await create(model=MODEL, messages=ASKED, stream=True):
        heard.append(chunk.choices[0].delta.content or "")  # noqa: PERF401 - it ends by raising


async def _collect(package: ollama.AsyncClient) -> list[ollama.ChatResponse]:
    return [each async for each in await package.chat(MODEL, ASKED, stream=True)]


async def test_a_database_that_is_lost_mid_stream_is_told_and_the_job_can_be_resumed(
    talk: Talking, http: httpx2.AsyncClient, hanging: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> OutputTail:
        raise DatabaseUnavailable("it is away")

    headers = keyed()
    async with streaming(http, headers=headers) as reader:
        await reader.lines(3)
        with monkeypatch.context() as patched:
            patched.setattr(talk.deployment.engine.output, "tail", away)
            (last,) = await reader.rest()
    assert reader.job in json.loads(last)["error"]
    go_on(talk)
    async with streaming(http, headers=headers) as again:
        assert json.loads((await again.rest())[-1])["done"] is True


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_a_stream_says_why_it_ends_once_its_key_is_revoked(
    talk: Talking, http: httpx2.AsyncClient, hanging: None, path: str
) -> None:
    key = await talk.deployment.create_key()
    async with streaming(http, path, bearer(key), stream=True) as reader:
        await (reader.lines(3) if path == "/api/chat" else reader.events(3))
        await talk.deployment.revoke_key(key)
        if path == "/api/chat":
            (last,) = await reader.rest()
            assert reader.job in json.loads(last)["error"]
        else:
            ((_, told),) = await reader.events(1_000)
            assert told["error"]["code"] == "unauthenticated"
    go_on(talk)
    await done(talk, reader.job)


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_whoever_waits_for_the_first_word_is_401_once_their_key_is_revoked(
    talk: Talking, http: httpx2.AsyncClient, silent: None, path: str, stream: bool
) -> None:
    key = await talk.deployment.create_key()
    asking = asyncio.create_task(
        http.post(path, json=CHAT | {"stream": stream}, headers=bearer(key))
    )

    async def waits() -> bool:
        return talk.deployment.engine.waits > 0

    await eventually_async(waits, "somebody waits for a job")
    await talk.deployment.revoke_key(key)
    answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    go_on(talk)
    await nobody_waits(talk)


async def test_what_cannot_be_said_in_openais_words_is_a_bad_gateway(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is of another making: its answer is kept, and can be read as it came."""

    def odd(_: bytes) -> NoReturn:
        raise msgspec.ValidationError("it is odd")

    monkeypatch.setattr(native, "decode_native", odd)
    async with streaming(http, "/v1/chat/completions", stream=True) as reader:
        ((_, only),) = await reader.events(1_000)
    assert only["error"]["code"] == "target_answer_invalid"
    whole = await http.post("/v1/chat/completions", json=CHAT)
    assert (whole.status_code, whole.json()["error"]["code"]) == (502, "target_answer_invalid")
    job = (await http.get(whole.headers["Location"])).json()
    assert job["result"]["message"]["content"]


async def test_another_question_under_a_known_key_is_refused_if_the_caller_is_strict(
    http: httpx2.AsyncClient,
) -> None:
    headers = keyed()
    first = await http.post("/api/chat", json=CHAT, headers=headers)
    other = CHAT | {"messages": [{"role": "user", "content": "Something else"}]}
    known = await http.post("/api/chat", json=other, headers=headers)
    assert known.headers["Idempotency-Mismatch"] == "true"
    assert known.text == first.text
    strict = await http.post(
        "/api/chat", json=other, headers=headers | {"Prefer": "handling=strict"}
    )
    assert (strict.status_code, strict.json()["code"]) == (422, "idempotency_mismatch")
    assert strict.json()["error"]


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "9" * 30])
async def test_an_id_that_is_none_is_refused(http: httpx2.AsyncClient, given: str) -> None:
    refused = await http.post("/api/chat", json=CHAT, headers={"Last-Event-ID": given})
    assert refused.status_code == 400
    assert refused.json()["details"][0]["field"] == "Last-Event-ID"
