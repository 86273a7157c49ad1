"""Targets that are asleep: their jobs wait, spend nothing, and go on when they are back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coatcheck import State
from coatcheck.db.connection import Connection
from coatcheck.domain.job import JobView
from coatcheck.products.llm import repository, target_monitor
from coatcheck.products.llm.model import LLM_DROPS_MAX
from coatcheck.products.llm.repository import LlmRepository
from coatcheck.products.llm.target_monitor import TargetMonitor
from coatcheck.products.llm.upstream import TargetDocument, Upstream
from coatcheck.settings.targets import LlmTarget
from coatcheck.telemetry import metrics
from examples.ollama_upstream import OllamaUpstream
from tests.products.llm.chats import MODEL, Chats, text_of
from tests.waiting import eventually_async

ORG = "default"


async def is_away(chats: Chats, target: str = "box") -> None:
    async def noted() -> bool:
        return any(
            state.name == target and state.unreachable_since is not None
            for state in await chats.engine.extension(LlmRepository).target_states()
        )

    await eventually_async(noted, "the target is known to be away")


async def waits(chats: Chats, job_id: str) -> JobView:
    async def retrying() -> JobView | None:
        view = await chats.engine.get(job_id)
        return view if view.unreachables else None

    view: JobView = await eventually_async(retrying, "the job waits for its target")
    return view


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets are looked at once: after that it is a job that finds them away."""
    monkeypatch.setattr(target_monitor, "LOOK_INTERVAL_MIN_SECONDS", 3_600.0)
    monkeypatch.setattr(target_monitor, "BUSY_LOOK_SECONDS", 3_600.0)


async def test_jobs_wait_for_a_target_that_is_asleep_and_go_when_it_wakes(
    dsn: str, tmp_path: Path, unwatched: None
) -> None:
    async with (
        OllamaUpstream(tokens_per_second=0) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
    ):
        await chats.work()
        await chats.answer_of(await chats.submit("awake"))
        await target.go_away()
        tickets = [await chats.submit(f"{number}") for number in range(5)]
        view = await waits(chats, tickets[0].id)
        assert view.state in (State.RETRYING, State.QUEUED)
        assert view.error_code == "target_unreachable"
        assert view.error_message == "The target box cannot be connected to."
        await is_away(chats)
        [state] = await chats.engine.extension(LlmRepository).target_states()
        assert state.next_try_at is not None
        assert state.last_error

        await target.come_back()
        for ticket in tickets:
            await chats.answer_of(ticket)
        views = [await chats.engine.get(ticket.id) for ticket in tickets]
        assert [view.failures for view in views] == [0] * 5
        # One found out for all of them.
        assert sum(view.unreachables for view in views) == 1

        async def forgotten() -> bool:
            [state] = await chats.engine.extension(LlmRepository).target_states()
            return state.unreachable_since is None

        await eventually_async(forgotten, "the target is known to be back")


async def test_a_job_whose_target_cannot_be_reached_was_never_at_work(
    dsn: str, tmp_path: Path, unwatched: None
) -> None:
    """Its model was loaded when somebody last looked; but nobody has been sent anything."""
    async with (
        OllamaUpstream(tokens_per_second=0) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
    ):
        await chats.work()
        await chats.answer_of(await chats.submit("awake"))
        listening = await chats.engine.webhooks.create_endpoint(ORG, None, ["job.*"], pulled=True)
        await target.go_away()
        await chats.submit("asleep")
        await is_away(chats)
        told = await chats.engine.webhooks.deliveries(ORG, endpoint=listening.id, limit=10)
        assert "job.processing" not in [each.event for each in told]


async def test_a_target_that_dies_in_its_answer_begins_again_when_it_is_back(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        OllamaUpstream(tokens_per_second=20, answer_tokens=40) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
    ):
        await chats.work()
        ticket = await chats.submit()
        await chats.until_streaming(ticket, 3)
        await target.go_away()
        await is_away(chats)
        target.tuning.tokens_per_second = 0
        await target.come_back()
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
        [mark] = [place for place, chunk in enumerate(chunks) if "coatcheck" in chunk]
        assert mark >= 3
        assert answer["message"]["content"] == text_of(chunks[mark + 1 :])
        assert len(chunks[mark + 1 :]) == 41
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.unreachables) == (0, 1)


@pytest.mark.slow
async def test_a_target_that_dies_in_its_answer_spends_nothing_however_often(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        OllamaUpstream(tokens_per_second=20, answer_tokens=40) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
    ):
        await chats.work()
        ticket = await chats.submit(retries=0)
        deaths = LLM_DROPS_MAX + 2
        for death in range(1, deaths + 1):
            await chats.until_streaming(ticket, len(await chats.chunks(ticket)) + 2)
            await target.go_away()

            async def is_missed(deaths: int = death) -> bool:
                return (await chats.engine.get(ticket.id)).unreachables == deaths

            await eventually_async(is_missed, "the target was found away")
            if death == deaths:
                target.tuning.tokens_per_second = 0
            await target.come_back()
        await chats.answer_of(ticket)
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.crashes, view.unreachables) == (0, 0, deaths)


async def test_a_target_that_is_asleep_when_the_worker_starts_is_waited_for(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        OllamaUpstream(["one"], tokens_per_second=0) as awake,
        OllamaUpstream(["two"], tokens_per_second=0) as asleep,
        Chats(
            dsn, tmp_path, [LlmTarget("awake", awake.url), LlmTarget("asleep", asleep.url)]
        ) as chats,
    ):
        await asleep.go_away()
        await chats.work()
        await is_away(chats, "asleep")
        messages = [{"role": "user", "content": "x"}]
        for_one = await chats.submit({"model": "one", "messages": messages})
        for_two = await chats.submit({"model": "two", "messages": messages})
        await chats.answer_of(for_one)
        # Only the one that sleeps can have it: nobody else is asked, and says that it has not.
        assert not (await chats.engine.get(for_two.id)).terminal
        await asleep.come_back()
        await chats.answer_of(for_two)
        assert [json.loads(body)["model"] for body in awake.seen.bodies("/api/chat")] == ["one"]


async def test_a_worker_that_starts_probes_what_the_last_one_found_away(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        OllamaUpstream(tokens_per_second=0) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
    ):
        first = await chats.work()
        await target.go_away()
        ticket = await chats.submit()
        await is_away(chats)
        await chats.stop(first)
        await target.come_back()
        await chats.work()
        await chats.answer_of(ticket)


@asynccontextmanager
async def monitor_of(dsn: str, target: OllamaUpstream) -> AsyncIterator[TargetMonitor]:
    line = Connection(dsn, name="tests")
    async with Upstream() as upstream:
        monitor = TargetMonitor(line, upstream, [LlmTarget("box", target.url)], lambda: None)
        async with monitor:
            yield monitor
    await line.close()


async def test_what_a_target_has_and_has_loaded_is_known(dsn: str, tmp_path: Path) -> None:
    async with (
        OllamaUpstream(["one", "two"], tokens_per_second=0) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url)]) as chats,
        monitor_of(dsn, target) as monitor,
    ):

        async def known() -> bool:
            [offer] = monitor.offers()
            return offer.models == {"one:latest", "two:latest"} and offer.concurrency == 1

        await eventually_async(known, "the target was looked at")
        assert monitor.offers()[0].resident == frozenset()
        await chats.work()
        await chats.answer_of(await chats.submit({"model": "one", "messages": [{"role": "user"}]}))
        monitor.began("box", "one:latest", loading=True)
        assert monitor.offers()[0].resident == frozenset()
        monitor.loaded("box", "one:latest")
        assert monitor.offers()[0].resident == {"one:latest"}

        async def unloaded() -> bool:
            monitor.ended("box", "one:latest", loading=False)  # it looks again
            monitor.began("box", "one:latest", loading=False)
            return monitor.offers()[0].resident == frozenset()

        target.memory.empty()
        await eventually_async(unloaded, "the look found the model gone")


async def test_a_look_from_before_a_model_was_loaded_does_not_unload_it(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        OllamaUpstream(["one"], tokens_per_second=0) as target,
        monitor_of(dsn, target) as monitor,
    ):
        monkeypatch.setattr(target_monitor, "LOOK_INTERVAL_MIN_SECONDS", 0.0)
        look, looks = Upstream.get, 0
        looks_again, may_look_again = asyncio.Event(), asyncio.Event()

        async def overtaken(upstream: Upstream, of: LlmTarget, path: str) -> TargetDocument:
            nonlocal looks
            looks += 1
            if looks > 1:
                looks_again.set()
                await may_look_again.wait()
            looked = await look(upstream, of, path)
            if looks == 1:
                monitor.loaded("box", "one:latest")
            return looked

        async def was_looked_at() -> bool:
            return target.seen.paths["/api/ps"] == 1

        await eventually_async(was_looked_at, "the target was looked at")
        monkeypatch.setattr(Upstream, "get", overtaken)
        monitor.began("box", "one:latest", loading=False)
        monitor.ended("box", "one:latest", loading=False)  # it looks, and then again
        await looks_again.wait()
        assert monitor.offers()[0].resident == {"one:latest"}

        async def is_unloaded() -> bool:
            return monitor.offers()[0].resident == frozenset()

        # Who asks now is told by a list that was made after it.
        may_look_again.set()
        await eventually_async(is_unloaded, "the second look found the model gone")


async def test_a_target_that_is_idle_is_hardly_looked_at(dsn: str, tmp_path: Path) -> None:
    async with (
        OllamaUpstream(tokens_per_second=0) as target,
        monitor_of(dsn, target) as monitor,
    ):

        async def looked() -> bool:
            return target.seen.paths["/api/ps"] == 1

        await eventually_async(looked, "it was looked at")
        for _ in range(50):
            await monitor.tick()
        assert target.seen.paths == {"/api/tags": 1, "/api/ps": 1}


async def test_a_target_that_is_found_away_twice_is_probed_once(dsn: str, tmp_path: Path) -> None:
    async with OllamaUpstream() as target, monitor_of(dsn, target) as monitor:
        await target.go_away()
        for _ in range(3):
            await monitor.mark_unreachable("box", "it is away")
        line = Connection(dsn, name="tests")
        [state] = await repository.target_states(line)
        await line.close()
        assert state.unreachable_since is not None
        assert monitor.offers()[0].concurrency == 0
        assert b'coatcheck_llm_target_up{target="box"} 0.0' in metrics.exposition()
        target.seen.reset()
        await target.come_back()

        async def back() -> bool:
            return monitor.offers()[0].concurrency == 1

        await eventually_async(back, "the prober found it")
        assert target.seen.paths["/api/version"] == 1
        assert b'coatcheck_llm_target_up{target="box"} 1.0' in metrics.exposition()
        assert MODEL + ":latest" in (monitor.offers()[0].models or ())


async def test_one_that_runs_takes_over_to_probe_when_nobody_does_any_more(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Connection(dsn, name="tests")
    monkeypatch.setattr(target_monitor, "STATES_SECONDS", 0.0)
    monkeypatch.setattr(target_monitor, "TICK_SECONDS", 0.05)
    async with OllamaUpstream() as target, monitor_of(dsn, target) as monitor:

        async def offered() -> bool:
            return monitor.offers()[0].concurrency == 1

        async def not_offered() -> bool:
            return monitor.offers()[0].concurrency == 0

        await eventually_async(offered, "it was looked at")
        await monitor.tick()
        await repository.mark_unreachable(line, "box", "somebody found it away", 3_600)
        await eventually_async(not_offered, "that is known")
        for _ in range(5):
            await monitor.tick()
        assert target.seen.paths["/api/version"] == 0, "somebody else probes it"
        monkeypatch.setattr(target_monitor, "OVERDUE_SECONDS", 0.0)
        await eventually_async(offered, "it was probed, and is offered again")
        [state] = await repository.target_states(line)
        assert state.unreachable_since is None
    await line.close()
