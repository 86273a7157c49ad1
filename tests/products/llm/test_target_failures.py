"""Targets that err, break off, talk nonsense or never end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coatcheck import State, Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.explanation import BlockerKind
from coatcheck.domain.retry import Backoff
from coatcheck.products.console.jobs import timeline
from coatcheck.products.llm import answers, executor, target_monitor
from coatcheck.products.llm.model import LLM_DROPS_MAX, LLM_ENDPOINTS, model_name
from coatcheck.settings.targets import LlmTarget
from examples.ollama_upstream import Fault, OllamaUpstream
from tests.products.llm.chats import MODEL, Chats, text_of
from tests.waiting import eventually_async


@asynccontextmanager
async def chats_with(
    dsn: str, folder: Path, executor: dict[str, Any] | None = None, **tuning: Any
) -> AsyncIterator[tuple[Chats, OllamaUpstream]]:
    tuning = {"tokens_per_second": 0} | tuning
    async with (
        OllamaUpstream(**tuning) as upstream,
        Chats(dsn, folder, [LlmTarget("box", upstream.url)], executor=executor) as chats,
    ):
        await chats.work()
        yield chats, upstream


@pytest.mark.parametrize("kind", ["cut", "early_end"])
async def test_an_answer_that_breaks_off_is_asked_for_again_and_given_once(
    dsn: str, tmp_path: Path, kind: Any
) -> None:
    async with chats_with(dsn, tmp_path, answer_tokens=12) as (chats, target):
        target.plan(Fault(kind, path="/api/chat", after_tokens=5))
        ticket = await chats.submit()
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
        [mark] = [place for place, chunk in enumerate(chunks) if "coatcheck" in chunk]
        assert chunks[mark] == {"coatcheck": {"restarted": True, "attempt": 1}}
        assert answer["message"]["content"] == text_of(chunks[mark + 1 :])
        assert len(chunks[mark + 1 :]) == 13
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.unreachables, view.attempts) == (0, 0, 1)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a target dropped is asked for again without a pause."""
    monkeypatch.setattr(executor, "DROP_BACKOFF", Backoff(0.0, 0.0, 0.0))
    monkeypatch.setattr(target_monitor, "PROBE_INTERVAL_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_target_that_drops_every_answer_and_is_there_is_not_asked_for_ever(
    dsn: str, tmp_path: Path
) -> None:
    async with chats_with(dsn, tmp_path, answer_tokens=12) as (chats, target):
        target.plan(Fault("cut", None, path="/api/chat", after_tokens=5))
        view = await chats.end_of(await chats.submit(retries=0))
        assert (view.state, view.error_code) == (State.FAILED, "target_connection_lost")
        assert view.error_message == (
            "The target box broke the connection in the middle of the answer 5 times, and "
            "answered again each time: the request may be what breaks it."
        )
        assert target.seen.paths["/api/chat"] == LLM_DROPS_MAX == 5
        assert (view.crashes, view.interruptions, view.unreachables) == (0, 0, 0)


@pytest.mark.usefixtures("at_once")
async def test_drops_are_counted_whoever_works(dsn: str, tmp_path: Path) -> None:
    async with (
        OllamaUpstream(tokens_per_second=0, answer_tokens=12) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
    ):
        first = await chats.work()
        target.plan(Fault("cut", 3, path="/api/chat", after_tokens=5))
        target.plan(Fault("hang", path="/api/chat", after_tokens=5))
        ticket = await chats.submit()

        async def hangs() -> bool:
            return target.seen.faults["hang"] == 1

        await eventually_async(hangs, "three answers were dropped, and the fourth hangs")
        await chats.stop(first)
        target.clear_faults()
        target.plan(Fault("cut", None, path="/api/chat", after_tokens=5))
        await chats.work()
        view = await chats.end_of(ticket)
        assert (view.state, view.error_code) == (State.FAILED, "target_connection_lost")
        assert target.seen.faults["cut"] == 5
        assert (view.interruptions, view.crashes) == (1, 0)


async def test_a_drop_is_told_by_the_job_its_explanation_and_its_timeline(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "DROP_BACKOFF", Backoff(3_600.0, 3_600.0, 0.0))
    async with chats_with(dsn, tmp_path) as (chats, target):
        target.plan(Fault("cut", path="/api/chat", after_tokens=5))
        ticket = await chats.submit()
        view = await chats.until(ticket, State.RETRYING)
        assert (view.error_code, view.failures) == ("target_connection_lost", 0)
        assert view.error_message == (
            "The connection to the target box broke in the middle of the answer (1 of 5), but the "
            "target answers."
        )
        explanation = await chats.engine.explainer.explain(view)
        (blocker,) = explanation.blockers
        assert blocker.kind is BlockerKind.BACKOFF
        assert "(1 of 5)" in blocker.message
        assert blocker.message.endswith("This does not count as an attempt.")
        job = await chats.engine.extension(OrgJobRepository).get("default", view.uuid)
        attempts, _ = await chats.engine.extension(OrgJobRepository).attempts("default", view.uuid)
        kinds = [item.kind for item in timeline(job, attempts, None)]
        assert kinds[-2:] == ["postponed", "retry_scheduled"]


async def test_what_does_not_pass_is_tried_until_no_try_is_left(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path) as (chats, target):
        target.plan(Fault("error", None, path="/api/chat"))
        ticket = await chats.submit(retries=1)
        view = await chats.end_of(ticket)
        assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
        assert view.error_message == (
            "failed 2 times; last: target_error: The target box answered 500: "
            "llama runner process has terminated: signal: killed"
        )
        assert target.seen.paths["/api/chat"] == 2


MAY_PASS = {
    "target_error: The target box answered 500: boom": Fault("error", message="boom"),
    "target_error: The target box answered 502.": Fault("error", status=502, message=" "),
    "target_error: The target box ended its answer with an error: gone": Fault(
        "error_line", message="gone", after_tokens=2
    ),
    "target_answer_invalid: The answer of the target box is not one of the Ollama API.": Fault(
        "garbage"
    ),
    "target_refused_us: The target box answered 401: no": Fault("error", status=401, message="no"),
    "target_refused_us: The target box answered 403: no": Fault("error", status=403, message="no"),
    "target_busy: The target box answered 429: later": Fault("error", status=429, message="later"),
    "target_busy: The target box answered 503: busy": Fault("error", status=503, message="busy"),
}
WILL_NOT_PASS = {
    "model_not_found: The target box answered 404: model 'x' not found": Fault(
        "error", status=404, message="model 'x' not found"
    ),
    "invalid_request: The target box answered 400: bad": Fault("error", status=400, message="bad"),
    "invalid_request: The target box answered 413: bad": Fault("error", status=413, message="bad"),
    "invalid_request: The target box answered 422: bad": Fault("error", status=422, message="bad"),
    "target_redirects: The target box answered 302. Redirects are not followed: set the URL that "
    "it leads to.": Fault("error", status=302, headers={"location": "http://127.0.0.1:9/"}),
    "answer_too_large: The answer has more than 16777216 bytes.": Fault(
        "long_line", size_bytes=100_000_000
    ),
}


async def test_each_failure_says_what_it_was_and_whether_it_may_pass(
    dsn: str, tmp_path: Path
) -> None:
    faults = MAY_PASS | WILL_NOT_PASS
    models = [f"model{number}:latest" for number in range(len(faults))]
    async with (
        OllamaUpstream(models, tokens_per_second=0, max_loaded=99) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url, concurrency=4)]) as chats,
    ):
        expected = []
        for model, (said, fault) in zip(models, faults.items(), strict=True):
            fault.model, fault.path = model, "/api/chat"
            target.plan(fault)
            messages = [{"role": "user", "content": "x"}]
            ticket = await chats.submit({"model": model, "messages": messages}, retries=0)
            expected.append((ticket, said))
        await chats.work()
        for ticket, said in expected:
            view = await chats.end_of(ticket)
            assert view.state is State.FAILED, said
            if said in MAY_PASS:
                assert view.error_code == "max_retries_exhausted"
                assert view.error_message == f"failed once; last: {said}"
            else:
                assert f"{view.error_code}: {view.error_message}" == said
        assert target.seen.paths["/api/chat"] == len(faults)


async def test_a_model_that_nobody_has_is_not_found(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path) as (chats, _):
        ticket = await chats.submit({"model": "gpt-9", "messages": []})
        view = await chats.end_of(ticket)
        assert (view.state, view.error_code) == (State.FAILED, "model_not_found")
        assert view.error_message == "The target box answered 404: model 'gpt-9' not found"


async def test_a_model_that_another_target_has_by_now_is_asked_for_there(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        OllamaUpstream(tokens_per_second=0) as first,
        OllamaUpstream(tokens_per_second=0) as second,
        Chats(dsn, tmp_path, [LlmTarget("a", first.url), LlmTarget("b", second.url)]) as chats,
    ):
        await chats.work()
        for target in (first, second):
            target.plan(Fault("error", path="/api/chat", status=404, message="not found"))
        ticket = await chats.submit()
        await chats.answer_of(ticket)
        view = await chats.engine.get(ticket.id)
        assert view.failures == sum(target.seen.faults["error"] for target in (first, second)) > 0


async def test_an_answer_without_end_is_given_up(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 2_000)
    async with chats_with(dsn, tmp_path) as (chats, target):
        target.plan(Fault("endless", path="/api/chat"))
        view = await chats.end_of(await chats.submit())
        assert (view.state, view.error_code) == (State.FAILED, "answer_too_large")
        assert target.seen.aborted == 1


async def test_a_target_that_is_busy_is_asked_again_when_it_wants_to_be(
    dsn: str, tmp_path: Path
) -> None:
    async with chats_with(dsn, tmp_path) as (chats, target):
        target.plan(Fault("error", path="/api/chat", status=429, headers={"retry-after": "3000"}))
        ticket = await chats.submit()
        view = await chats.until(ticket, State.RETRYING)
        assert view.error_code == "target_busy"
        assert 2_990 < (view.run_at - view.updated_at).total_seconds() <= 3_000


async def test_a_target_that_says_nothing_but_is_alive_spends_a_try(
    dsn: str, tmp_path: Path
) -> None:
    async with chats_with(dsn, tmp_path, {"silence_seconds_max": 2.0}) as (chats, target):
        target.plan(Fault("hang", path="/api/chat", after_tokens=2))
        ticket = await chats.submit()
        await chats.answer_of(ticket)
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.unreachables) == (1, 0)
        assert target.seen.aborted == 1


async def test_a_target_that_fell_asleep_in_its_answer_spends_none(
    dsn: str, tmp_path: Path
) -> None:
    async with chats_with(dsn, tmp_path, {"stall_probe_seconds": 0.1}) as (chats, target):
        target.plan(Fault("hang", path="/api/chat", after_tokens=2))
        ticket = await chats.submit()
        await chats.until_streaming(ticket, 2)
        # Not before: it may be asked sooner, while its first word is awaited on a busy machine.
        target.plan(Fault("error", None, path="/api/version", status=502))

        async def has_slept() -> bool:
            return (await chats.engine.get(ticket.id)).unreachables == 1

        await eventually_async(has_slept, "the target is taken to be asleep")
        target.clear_faults()
        await chats.answer_of(ticket)
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.unreachables) == (0, 1)
        [mark] = [chunk for chunk in await chats.chunks(ticket) if "coatcheck" in chunk]
        assert mark["coatcheck"]["attempt"] == 1


async def test_a_target_that_thinks_for_long_is_waited_for(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path, {"stall_probe_seconds": 0.05}) as (chats, target):
        target.plan(Fault("hang", path="/api/chat", after_tokens=2))
        ticket = await chats.submit()

        async def asked_twice() -> bool:
            return target.seen.paths["/api/version"] >= 2

        await eventually_async(asked_twice, "it was asked whether it is there")
        target.clear_faults()
        await chats.answer_of(ticket)
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.unreachables) == (0, 0)


async def test_one_broken_chat_harms_no_other(dsn: str, tmp_path: Path) -> None:
    async with (
        OllamaUpstream(tokens_per_second=100, answer_tokens=30) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url, concurrency=2)]) as chats,
    ):
        await chats.work()
        target.plan(Fault("garbage", path="/api/chat", after_tokens=3))
        tickets = [await chats.submit(f"{number}") for number in range(2)]
        answers_given = await asyncio.gather(*map(chats.answer_of, tickets))
        assert all(answer["done"] for answer in answers_given)
        failures = [(await chats.engine.get(ticket.id)).failures for ticket in tickets]
        assert sorted(failures) == [0, 1]


async def several(chats: Chats, answers: int) -> Ticket:
    """A job that asks its model so often."""
    model = model_name(MODEL)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": True}
    turns = [{"options": {"seed": seed}} for seed in range(1, answers)]
    payload = {"kind": "chat", "model": model, "body": body, "turns": turns}
    return await chats.engine.submit(LLM_ENDPOINTS["chat"], payload, queue_key=model)


async def test_a_break_in_a_later_answer_asks_for_all_of_them_again(
    dsn: str, tmp_path: Path
) -> None:
    async with chats_with(dsn, tmp_path) as (chats, target):
        target.plan(Fault("hang", path="/api/chat", after_tokens=3))
        ticket = await several(chats, 3)
        await chats.until_streaming(ticket, 3)
        target.clear_faults()
        target.plan(Fault("error_line", path="/api/chat", after_tokens=2))  # of the next request
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
    assert target.seen.faults == {"hang": 1, "error_line": 1}
    assert target.seen.paths["/api/chat"] == 5
    others = [each["message"]["content"] for each in answer["other_choices"]]
    assert len({answer["message"]["content"], *others}) == 3
    restarts = [at for at, chunk in enumerate(chunks) if "coatcheck" in chunk]
    assert len(restarts) == 1
    after = chunks[restarts[0] + 1 :]
    assert sum(chunk["done"] for chunk in after) == 3
    texts = "".join(chunk["message"]["content"] for chunk in after)
    assert texts == "".join([answer["message"]["content"], *others])


async def test_all_answers_of_a_job_have_the_room_of_one(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (answers, executor):
        monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1_500)
    async with chats_with(dsn, tmp_path) as (chats, _):
        alone = await chats.end_of(await several(chats, 1))
        many = await chats.end_of(await several(chats, 8))
    assert alone.state is State.COMPLETED
    assert (many.state, many.error_code) == (State.FAILED, "answer_too_large")


async def test_embeddings_that_are_none_are_asked_for_again(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path) as (chats, target):
        target.plan(Fault("error", path="/api/embed", status=500))
        body = {"model": "nomic-embed-text", "input": ["one"]}
        model = model_name("nomic-embed-text")
        payload = {"kind": "embed", "model": model, "body": body}
        ticket = await chats.engine.submit(LLM_ENDPOINTS["embed"], payload, queue_key=model)
        answer = await chats.answer_of(ticket)
        assert await chats.chunks(ticket) == []
    assert len(answer["embeddings"]) == 1
    assert target.seen.paths["/api/embed"] == 2
