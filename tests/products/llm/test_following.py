"""Following a job: each piece once, in order, with no read that nobody asked for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from coatcheck import Engine, Job, Service, Settings
from coatcheck.core import watcher
from coatcheck.core.queries import reports
from coatcheck.db.notifications import CHANGED
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.job import JobView
from coatcheck.http.lifecycle import ServerDraining as Drain
from coatcheck.products.llm import output_stream
from coatcheck.products.llm.output_stream import (
    Idle,
    OutputChunk,
    OutputDraining,
    OutputEnded,
    Piece,
    Restarted,
    follow,
)
from coatcheck.worker.worker import Worker
from tests.db.rows import connected
from tests.waiting import eventually_async

RESTART = {"coatcheck": {"restarted": True, "attempt": 2}}

speaker = Service("speaker")
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@speaker.post("/say")
async def say(job: Job, groups: list[list[Any]], gate: str = "") -> str:
    """Say each group of words, the second and later ones once the test has opened their gates."""
    for at, group in enumerate(groups):
        if at:
            await gates[f"{gate}{at}"].wait()
        for word in group:
            await job.emit(word)
    return "said"


@pytest.fixture
async def engine(dsn: str, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri(), drain_seconds=0)
    worker = Worker(settings, [speaker])
    working = asyncio.create_task(worker.run())
    async with Engine(settings) as started:
        yield started
    worker.stop()
    await working


async def all_pieces(engine: Engine, view: JobView, after: int = 0) -> list[Piece]:
    return [piece async for piece in follow(engine, Drain(), view.org, view.uuid, after=after)]


async def said(engine: Engine, *groups: list[Any]) -> JobView:
    """A job that has said this, and ended."""
    ticket = await engine.submit("speaker.post__say", {"groups": [[*chain(*groups)]]})
    view = await engine.wait(ticket.id)
    assert view.terminal
    return view


def words(pieces: list[Piece]) -> list[bytes]:
    return [piece.data for piece in pieces if isinstance(piece, OutputChunk)]


async def test_the_output_comes_in_order_then_the_end(engine: Engine) -> None:
    view = await said(engine, [{"n": 1}, {"n": 2}, {"n": 3}])
    *pieces, last = await all_pieces(engine, view)
    assert words(pieces) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert isinstance(last, OutputEnded)
    assert (last.view.id, last.view.result) == (view.id, b'"said"')


async def test_a_follower_goes_on_after_the_last_piece_it_saw(engine: Engine) -> None:
    view = await said(engine, [{"n": 1}, {"n": 2}, {"n": 3}])
    first = (await all_pieces(engine, view))[0]
    assert isinstance(first, OutputChunk)
    assert words(await all_pieces(engine, view, after=first.seq)) == [b'{"n":2}', b'{"n":3}']


async def test_output_comes_while_the_job_runs(engine: Engine) -> None:
    gate = uuid4().hex
    ticket = await engine.submit(
        "speaker.post__say", {"groups": [[{"n": 1}], [{"n": 2}]], "gate": gate}
    )
    pieces = follow(engine, Drain(), "default", ticket.uuid)
    first = await anext(pieces)
    assert isinstance(first, OutputChunk)
    assert first.data == b'{"n":1}'
    assert not (await engine.get(ticket.id)).terminal
    gates[f"{gate}1"].set()
    second = await anext(pieces)
    assert isinstance(second, OutputChunk)
    assert second.data == b'{"n":2}'
    assert isinstance(await anext(pieces), OutputEnded)
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)


async def test_what_is_not_the_models_is_not_output(engine: Engine) -> None:
    view = await said(engine, ["text", {"n": 1}])
    assert words(await all_pieces(engine, view)) == [b'{"n":1}']


async def test_a_live_follower_is_told_of_a_restart(engine: Engine) -> None:
    gate = uuid4().hex
    groups = [[{"n": 1}], [RESTART, {"n": 2}]]
    ticket = await engine.submit("speaker.post__say", {"groups": groups, "gate": gate})
    pieces = follow(engine, Drain(), "default", ticket.uuid)
    assert isinstance(await anext(pieces), OutputChunk)
    gates[f"{gate}1"].set()
    restarted = await anext(pieces)
    assert isinstance(restarted, Restarted)
    assert restarted.attempt == 2
    assert words([piece async for piece in pieces]) == [b'{"n":2}']


async def test_who_comes_late_is_not_told_what_is_void(engine: Engine) -> None:
    view = await said(engine, [{"n": 1}, RESTART, {"n": 2}])
    first, *rest = await all_pieces(engine, view)
    assert isinstance(first, Restarted)
    assert words(rest) == [b'{"n":2}']


async def test_nor_is_he_if_it_is_more_than_a_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PAGE_EVENTS", 2)
    view = await said(engine, [{"n": 1}] * 5, [RESTART], [{"n": 2}] * 5)
    first, *rest = await all_pieces(engine, view)
    assert isinstance(first, Restarted)
    assert words(rest) == [b'{"n":2}'] * 5


async def test_more_output_than_a_page_is_whole(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PAGE_EVENTS", 3)
    view = await said(engine, [{"n": number} for number in range(10)])
    assert words(await all_pieces(engine, view)) == [b'{"n":%d}' % at for at in range(10)]


async def test_a_page_ends_when_it_has_its_bytes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "PAGE_BYTES", 20)
    long = {"n": "x" * 14}
    view = await said(engine, [long, long, long])
    tail = await engine.output.tail(view.org, view.uuid, 0)
    assert (len(tail.events), tail.more) == (1, True)
    assert len(words(await all_pieces(engine, view))) == 3


async def test_followers_that_are_woken_together_share_a_read(
    engine: Engine, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = uuid4().hex
    reads: list[int] = []
    tails = reports.tails

    async def counted(line: Any, places: Any, *bounds: int) -> Any:
        reads.append(len(places))
        return await tails(line, places, *bounds)

    monkeypatch.setattr(watcher, "LOOK_AGAIN_SECONDS", 60.0)
    groups = [[{"n": 1}], [{"n": 2}]]
    tickets = [
        await engine.submit("speaker.post__say", {"groups": groups, "gate": gate}) for _ in range(4)
    ]
    streams = [follow(engine, Drain(), "default", ticket.uuid) for ticket in tickets]
    for stream in streams:
        assert isinstance(await anext(stream), OutputChunk)
    monkeypatch.setattr(reports, "tails", counted)
    nexts = [asyncio.ensure_future(anext(stream)) for stream in streams]

    async def one_read_served_all() -> bool:
        """Whoever was reading just then is woken, too, and reads a moment later: then, again."""
        reads.clear()
        changed = ",".join(ticket.uuid.hex for ticket in tickets)
        async with connected(dsn) as connection:
            await connection.execute("SELECT pg_notify($1, $2)", CHANGED, changed)
        await eventually_async(all_have_read, "all have read")
        return reads == [4]

    async def all_have_read() -> bool:
        return sum(reads) >= 4

    await eventually_async(one_read_served_all, "all were woken, and one read served them")
    gates[f"{gate}1"].set()
    assert all(isinstance(piece, OutputChunk) for piece in await asyncio.gather(*nexts))
    for stream in streams:
        await stream.aclose()


async def test_a_silent_job_says_now_and_then_that_it_is_there(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_stream, "IDLE_SECONDS", 0.01)
    ticket = await engine.submit("speaker.post__nobody_serves_this", {})
    pieces = follow(engine, Drain(), "default", ticket.uuid)
    assert isinstance(await anext(pieces), Idle)
    assert isinstance(await anext(pieces), Idle)
    await engine.cancel(ticket.id)
    assert isinstance([piece async for piece in pieces][-1], OutputEnded)


async def test_a_drain_ends_the_stream_at_once_and_not_the_job(engine: Engine) -> None:
    drain = Drain()
    ticket = await engine.submit("speaker.post__nobody_serves_this", {})
    pieces = follow(engine, drain, "default", ticket.uuid)
    waiting = asyncio.ensure_future(anext(pieces))

    async def is_watched() -> bool:
        return engine.waits > 0

    await eventually_async(is_watched, "it is followed")
    drain.begin()
    assert isinstance(await waiting, OutputDraining)
    assert not (await engine.get(ticket.id)).terminal
    # One that begins during the drain ends the same way.
    assert isinstance(await anext(follow(engine, drain, "default", ticket.uuid)), OutputDraining)


async def test_a_job_that_is_not_there_is_not_followed(engine: Engine) -> None:
    with pytest.raises(JobNotFound):
        await anext(follow(engine, Drain(), "default", uuid4()))
    view = await said(engine, [{"n": 1}])
    with pytest.raises(JobNotFound):
        await anext(follow(engine, Drain(), "another", view.uuid))


async def test_two_followers_of_one_job_hear_the_same(engine: Engine) -> None:
    gate = uuid4().hex
    ticket = await engine.submit(
        "speaker.post__say", {"groups": [[{"n": 1}], [{"n": 2}]], "gate": gate}
    )
    view = await engine.get(ticket.id)
    both = asyncio.gather(all_pieces(engine, view), all_pieces(engine, view))
    gates[f"{gate}1"].set()
    one, other = await both
    assert words(one) == words(other) == [b'{"n":1}', b'{"n":2}']
