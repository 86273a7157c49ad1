"""Callers who leave before their answer, and clients that ask again of their own accord."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from coatcheck.core import Engine
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.products.llm import repository
from coatcheck.products.llm.repository import LlmRepository
from examples.ollama_upstream import Fault
from tests.db.lossy_proxy import LossyProxy
from tests.deployment import Server, bearer
from tests.products.llm.talking import MODEL, Talking, talking
from tests.waiting import eventually_async

ORG = "default"
ASKED: list[Any] = [{"role": "user", "content": "Tell me"}]
CHAT = {"model": MODEL, "messages": ASKED}
COMPLETIONS = "/v1/chat/completions"
RETRY = {"x-stainless-retry-count": "1"}
JOINED = "X-Job-Joined"
UNJOINED = "SELECT job_id FROM llm_abandoned WHERE joined_by IS NULL"


@pytest.fixture
async def talk(dsn: str, tmp_path: Path) -> AsyncIterator[Talking]:
    async with talking(dsn, tmp_path) as opened:
        opened.deployment.start_maintenance()
        yield opened


def hold(talk: Talking, *, after_tokens: int = 0) -> None:
    """No answer says more than so much until ``go_on`` is called."""
    talk.upstream.plan(Fault("hang", None, path="/api/chat", after_tokens=after_tokens))


def go_on(talk: Talking) -> None:
    talk.upstream.clear_faults()


async def jobs(talk: Talking) -> Sequence[JobView]:
    return await talk.deployment.engine.list(org=ORG)


class Impatient:
    """A client of the real package that gives each request a second, and counts them."""

    def __init__(self, talk: Talking) -> None:
        self.requests = 0
        self._http = httpx.AsyncClient(event_hooks={"request": [self._count]}, trust_env=False)
        self.client = talk.openai(http_client=self._http, timeout=1.0, max_retries=100)

    async def _count(self, _: httpx.Request) -> None:
        self.requests += 1

    async def has_asked(self, times: int) -> None:
        async def asked() -> bool:
            return self.requests >= times

        await eventually_async(asked, f"the package has asked {times} times")

    async def ask(self) -> tuple[str, str]:
        """The job's id and its answer, whole."""
        raw = await self.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=ASKED
        )
        return raw.headers["X-Job-Id"], raw.parse().choices[0].message.content or ""

    async def ask_streaming(self) -> tuple[str, str]:
        raw = await self.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=ASKED, stream=True
        )
        said = [
            choice.delta.content or "" async for chunk in raw.parse() for choice in chunk.choices
        ]
        return raw.headers["X-Job-Id"], "".join(said)


@asynccontextmanager
async def impatient(talk: Talking) -> AsyncIterator[Impatient]:
    caller = Impatient(talk)
    async with caller.client:
        yield caller


async def leave(
    talk: Talking,
    *,
    path: str = COMPLETIONS,
    replica: Server | None = None,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> JobView:
    """A caller who asks, and leaves before the answer: their job."""
    known = {view.id for view in await jobs(talk)}
    replica = replica or talk.deployment.server
    engine = replica.context.engine
    asking = asyncio.create_task(replica.http.post(path, json=CHAT | fields, headers=headers))

    async def is_waited_for() -> JobView | None:
        new = [view for view in await jobs(talk) if view.id not in known]
        return new[0] if new and engine.waits > 0 else None

    view: JobView = await eventually_async(is_waited_for, "the job is waited for")
    asking.cancel()

    async def has_left() -> bool:
        return engine.waits == 0

    await eventually_async(has_left, "nobody waits for the job")
    return view


async def known_as_left(talk: Talking, *views: JobView) -> None:
    async def is_known() -> bool:
        rows = await talk.deployment.connection.fetch(UNJOINED)
        return {row["job_id"] for row in rows} >= {view.uuid for view in views}

    await eventually_async(is_known, "the database knows that the callers have left")


async def again(http: httpx2.AsyncClient, **fields: Any) -> httpx2.Response:
    return await http.post(COMPLETIONS, json=CHAT | fields, headers=RETRY)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_a_call_that_times_out_and_is_tried_again_makes_one_job(
    talk: Talking, streams: bool
) -> None:
    hold(talk)
    async with impatient(talk) as caller:
        asking = asyncio.create_task(caller.ask_streaming() if streams else caller.ask())
        await caller.has_asked(3)
        go_on(talk)
        job, said = await asking
    (view,) = await jobs(talk)
    assert (view.id, view.state) == (job, State.COMPLETED)
    assert talk.upstream.seen.paths["/api/chat"] == 1
    told = (await talk.deployment.http.get(f"/jobs/{job}")).json()
    assert said == told["result"]["message"]["content"]


async def test_identical_calls_that_all_time_out_keep_a_job_each(talk: Talking) -> None:
    hold(talk)
    async with impatient(talk) as one, impatient(talk) as two, impatient(talk) as three:
        asking = [asyncio.create_task(caller.ask()) for caller in (one, two, three)]
        for caller in (one, two, three):
            await caller.has_asked(3)
        go_on(talk)
        answered = {job for job, _ in await asyncio.gather(*asking)}
    assert len(answered) == 3
    assert {view.id for view in await jobs(talk)} == answered


async def test_a_retry_joins_at_whichever_server_it_arrives(talk: Talking) -> None:
    hold(talk)
    left = await leave(talk)
    await known_as_left(talk, left)
    second = await talk.deployment.start_server()
    asking = asyncio.create_task(again(second.http))
    go_on(talk)
    answer = await asking
    assert (answer.status_code, answer.headers[JOINED]) == (200, "true")
    assert answer.headers["X-Job-Id"] == left.id
    assert len(await jobs(talk)) == 1


async def test_of_two_retries_at_once_one_joins_and_the_other_has_a_job_of_its_own(
    talk: Talking,
) -> None:
    hold(talk)
    left = await leave(talk)
    await known_as_left(talk, left)
    second = await talk.deployment.start_server()
    asking = [
        asyncio.create_task(again(talk.deployment.http)),
        asyncio.create_task(again(second.http)),
    ]

    async def both_wait() -> bool:
        engines = (talk.deployment.engine, second.context.engine)
        return all(engine.waits > 0 for engine in engines)

    await eventually_async(both_wait, "both wait for a job")
    go_on(talk)
    answers = await asyncio.gather(*asking)
    assert sorted(answer.headers.get(JOINED, "") for answer in answers) == ["", "true"]
    answered = {answer.headers["X-Job-Id"] for answer in answers}
    assert left.id in answered
    assert {view.id for view in await jobs(talk)} == answered
    assert len(answered) == 2


async def test_a_retry_that_leaves_as_well_is_followed_by_the_next(talk: Talking) -> None:
    hold(talk)
    left = await leave(talk)
    await known_as_left(talk, left)
    asking = asyncio.create_task(again(talk.deployment.http))

    async def is_joined() -> bool:
        return not await talk.deployment.connection.fetch(UNJOINED)

    await eventually_async(is_joined, "the retry has joined")
    asking.cancel()
    await known_as_left(talk, left)
    go_on(talk)
    answer = await again(talk.deployment.http)
    assert answer.headers["X-Job-Id"] == left.id


async def test_a_retry_that_joined_without_an_answer_joins_the_same_chat(talk: Talking) -> None:
    """The database commits, and the connection breaks: the server asks again."""
    hold(talk)
    first, second = await leave(talk), await leave(talk)
    await known_as_left(talk, first, second)
    sql = talk.deployment.sql
    owner, payload = await sql.fetchrow("SELECT owner, payload FROM jobs WHERE id = $1", first.uuid)
    async with AsyncExitStack() as far:
        proxy = await far.enter_async_context(LossyProxy.before(talk.deployment.dsn))
        engine = await far.enter_async_context(
            Engine(talk.deployment.settings_with(database_url=proxy.dsn))
        )
        chats: LlmRepository = engine.extension(LlmRepository)
        proxy.lose_answers(after=hashlib.sha256(payload).digest())
        joining = asyncio.create_task(chats.join_abandoned(ORG, owner, payload))

        async def is_joined() -> bool:
            return len(await sql.fetch(UNJOINED)) == 1

        await eventually_async(is_joined, "the retry has joined")
        proxy.cut()
        joined = await joining
        assert joined is not None
        assert joined[0] == first.uuid
        next_one = await chats.join_abandoned(ORG, owner, payload)
        assert next_one is not None
        assert next_one[0] == second.uuid
        assert await chats.join_abandoned(ORG, owner, payload) is None
    go_on(talk)


async def test_an_answer_that_came_meanwhile_is_given_at_once(talk: Talking) -> None:
    hold(talk)
    left = await leave(talk)
    await known_as_left(talk, left)
    go_on(talk)
    assert (await talk.deployment.engine.wait(left.id)).state is State.COMPLETED
    answer = await again(talk.deployment.http)
    assert answer.headers["X-Job-Id"] == left.id
    assert answer.json()["choices"][0]["message"]["content"]


async def test_a_retry_follows_the_stream_from_its_beginning(talk: Talking) -> None:
    hold(talk, after_tokens=3)
    http = talk.deployment.http
    async with http.stream("POST", COMPLETIONS, json=CHAT | {"stream": True}) as response:
        job = response.headers["X-Job-Id"]
        await anext(response.aiter_lines())
    await known_as_left(talk, await talk.deployment.engine.get(job))
    go_on(talk)
    answer = await again(http, stream=True)
    assert answer.headers["X-Job-Id"] == job
    (whole,) = [view for view in await jobs(talk) if view.id == job]
    assert whole.state is State.COMPLETED
    told = (await http.get(f"/jobs/{job}")).json()["result"]["message"]["content"]
    chunks = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    said = [httpx2.Response(200, content=chunk[6:]).json() for chunk in chunks]
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in said) == told


async def test_a_caller_who_still_waits_is_left_their_job(talk: Talking) -> None:
    hold(talk)
    first = asyncio.create_task(talk.deployment.http.post(COMPLETIONS, json=CHAT))

    async def is_there() -> bool:
        return len(await jobs(talk)) == 1

    await eventually_async(is_there, "the first job is there")
    second = asyncio.create_task(again(talk.deployment.http))

    async def are_there() -> bool:
        return len(await jobs(talk)) == 2

    await eventually_async(are_there, "the second job is there")
    go_on(talk)
    answers = await asyncio.gather(first, second)
    assert len({answer.headers["X-Job-Id"] for answer in answers}) == 2


async def test_only_a_retry_of_the_same_caller_and_the_same_body_joins(talk: Talking) -> None:
    hold(talk)
    left = await leave(talk)
    await known_as_left(talk, left)
    go_on(talk)
    http = talk.deployment.http
    colleague = bearer(await talk.deployment.create_key(user="colleague"))
    await talk.deployment.create_org("other")
    stranger = bearer(await talk.deployment.create_key(org="other"))
    for headers, fields in (
        ({}, {}),
        ({"x-stainless-retry-count": "0"}, {}),
        ({"x-stainless-retry-count": "none"}, {}),
        (RETRY, {"temperature": 0.5}),
        (RETRY | {"Idempotency-Key": "mine"}, {}),
        (RETRY | {"Prefer": "respond-async"}, {}),
        (RETRY | colleague, {}),
        (RETRY | stranger, {}),
    ):
        answer = await http.post(COMPLETIONS, json=CHAT | fields, headers=headers)
        assert answer.status_code in (200, 202), answer.text
        assert JOINED not in answer.headers, headers
        assert answer.headers["X-Job-Id"] != left.id
    assert (await again(http)).headers["X-Job-Id"] == left.id


async def test_a_job_with_a_key_or_a_webhook_of_its_own_is_not_joined(talk: Talking) -> None:
    hold(talk)
    keyed = await leave(talk, headers={"Idempotency-Key": "mine"})
    told = await leave(talk, webhook_url="http://127.0.0.1:9/")
    go_on(talk)
    answer = await again(talk.deployment.http)
    assert answer.headers["X-Job-Id"] not in (keyed.id, told.id)
    assert not await talk.deployment.connection.fetch("SELECT job_id FROM llm_abandoned")


async def test_a_job_that_was_left_long_ago_is_not_joined_and_forgotten(talk: Talking) -> None:
    hold(talk)
    left = await leave(talk)
    await known_as_left(talk, left)
    go_on(talk)
    await talk.deployment.connection.fetch(
        "UPDATE llm_abandoned SET left_at = left_at - $1 * interval '1 second'",
        repository.RETRY_SECONDS_MAX + 1,
    )
    assert JOINED not in (await again(talk.deployment.http)).headers

    async def is_forgotten() -> bool:
        return not await talk.deployment.connection.fetch("SELECT job_id FROM llm_abandoned")

    await eventually_async(is_forgotten, "what nobody may join is deleted")


async def test_callers_of_ollamas_routes_are_joined_as_well(talk: Talking) -> None:
    hold(talk)
    left = await leave(talk, path="/api/chat", stream=False)
    await known_as_left(talk, left)
    go_on(talk)
    answer = await talk.deployment.http.post(
        "/api/chat", json=CHAT | {"stream": False}, headers=RETRY
    )
    assert (answer.headers["X-Job-Id"], answer.json()["done"]) == (left.id, True)


FORCED: list[Any] = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]


@pytest.mark.parametrize(
    ("path", "asked", "calls"),
    [
        (COMPLETIONS, CHAT | {"n": 3, "seed": 7}, "/api/chat"),
        (COMPLETIONS, CHAT | {"tools": FORCED, "tool_choice": "required"}, "/api/chat"),
        ("/v1/responses", {"model": MODEL, "input": "Tell me"}, "/api/chat"),
        ("/v1/completions", {"model": MODEL, "prompt": ["Tell", "me"]}, "/api/generate"),
        ("/v1/embeddings", {"model": "nomic-embed-text", "input": "Tell me"}, "/api/embed"),
    ],
    ids=["several answers", "a forced call", "a response", "a completion", "embeddings"],
)
async def test_a_retry_joins_on_every_route_of_openais(
    talk: Talking, path: str, asked: dict[str, Any], calls: str
) -> None:
    talk.upstream.plan(Fault("hang", None, path=calls))
    engine = talk.deployment.engine
    asking = asyncio.create_task(talk.deployment.http.post(path, json=asked))

    async def is_waited_for() -> bool:
        return bool(await jobs(talk)) and engine.waits > 0

    await eventually_async(is_waited_for, "the job is waited for")
    asking.cancel()
    (left,) = await jobs(talk)
    await known_as_left(talk, left)
    go_on(talk)
    answer = await talk.deployment.http.post(path, json=asked, headers=RETRY)
    assert (answer.status_code, answer.headers[JOINED]) == (200, "true"), answer.text
    assert answer.headers["X-Job-Id"] == left.id
    assert len(await jobs(talk)) == 1


async def test_a_server_that_stops_sends_the_package_on_to_the_same_job(talk: Talking) -> None:
    hold(talk)
    second = await talk.deployment.start_server()
    asking = asyncio.create_task(second.http.post(COMPLETIONS, json=CHAT))

    async def is_waited_for() -> bool:
        return second.context.engine.waits > 0

    await eventually_async(is_waited_for, "the job is waited for")
    await second.stop()
    stopped = await asking
    assert (stopped.status_code, stopped.json()["code"]) == (503, "server_stopping")
    assert "x-should-retry" not in stopped.headers
    go_on(talk)
    answer = await again(talk.deployment.http)
    assert answer.headers["X-Job-Id"] == stopped.headers["X-Job-Id"]


async def test_a_server_that_stops_keeps_the_package_from_what_it_could_not_join(
    talk: Talking,
) -> None:
    hold(talk)
    second = await talk.deployment.start_server()
    fields = {"webhook_url": "http://127.0.0.1:9/"}
    asking = asyncio.create_task(second.http.post(COMPLETIONS, json=CHAT | fields))

    async def is_waited_for() -> bool:
        return second.context.engine.waits > 0

    await eventually_async(is_waited_for, "the job is waited for")
    await second.stop()
    stopped = await asking
    assert (stopped.status_code, stopped.headers["x-should-retry"]) == (503, "false")
    go_on(talk)


class TestWhereAbandonedChatsAreCancelled:
    """With COATCHECK_LLM_CANCEL_ABANDONED."""

    @pytest.fixture
    async def talk(self, dsn: str, tmp_path: Path) -> AsyncIterator[Talking]:
        async with talking(dsn, tmp_path, llm_cancel_abandoned=True) as opened:
            opened.deployment.start_maintenance()
            yield opened

    @pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
    async def test_a_caller_who_leaves_takes_their_job_with_them(
        self, talk: Talking, streams: bool
    ) -> None:
        hold(talk)
        left = await leave(talk, stream=streams)
        view = await talk.deployment.engine.wait(left.id)
        assert (view.state, view.error_code) == (State.CANCELLED, "cancelled")

    async def test_one_who_leaves_in_the_middle_of_a_stream_does_too(self, talk: Talking) -> None:
        hold(talk, after_tokens=3)
        async with talk.deployment.http.stream(
            "POST", COMPLETIONS, json=CHAT | {"stream": True}
        ) as response:
            job = response.headers["X-Job-Id"]
            await anext(response.aiter_lines())
        assert (await talk.deployment.engine.wait(job)).state is State.CANCELLED

    async def test_a_retry_has_a_job_of_its_own(self, talk: Talking) -> None:
        hold(talk)
        left = await leave(talk)
        assert (await talk.deployment.engine.wait(left.id)).state is State.CANCELLED
        go_on(talk)
        answer = await again(talk.deployment.http)
        assert answer.status_code == 200
        assert answer.headers["X-Job-Id"] != left.id

    async def test_a_server_that_stops_takes_no_job_with_it(self, talk: Talking) -> None:
        hold(talk)
        second = await talk.deployment.start_server()
        asking = asyncio.create_task(second.http.post(COMPLETIONS, json=CHAT))

        async def is_waited_for() -> bool:
            return second.context.engine.waits > 0

        await eventually_async(is_waited_for, "the job is waited for")
        await second.stop()
        stopped = await asking
        assert stopped.status_code == 503
        go_on(talk)
        assert (await again(talk.deployment.http)).headers["X-Job-Id"] == stopped.headers[
            "X-Job-Id"
        ]

    async def test_what_others_may_wait_for_goes_on(self, talk: Talking) -> None:
        hold(talk)
        keyed = await leave(talk, headers={"Idempotency-Key": "mine"})
        told = await leave(talk, webhook_url="http://127.0.0.1:9/")
        queued = await talk.deployment.http.post(
            COMPLETIONS, json=CHAT, headers={"Prefer": "respond-async"}
        )
        go_on(talk)
        for job in (keyed.id, told.id, queued.headers["X-Job-Id"]):
            assert (await talk.deployment.engine.wait(job)).state is State.COMPLETED
