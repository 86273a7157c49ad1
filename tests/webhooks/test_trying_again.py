"""What a receiver answers decides whether, and when, it is told again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.domain.webhooks import RETRY_JITTER, RETRY_SECONDS, TRIES_MAX
from tests.egress.upstream_server import Answer, Request, UpstreamServer, head, plain
from tests.webhooks.webhook_deliveries import (
    WebhookDeliveries,
    held,
    ids_of,
    in_turn,
    status,
    verified,
)

OK = plain()


async def broken(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def half_an_answer(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(head("200 OK", (("Content-Length", "100"),)) + b"half")
    writer.close()


async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
    """An answer that is right, and goes on for ever."""
    writer.write(head("200 OK", (("Content-Length", str(2**40)),)))
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def unspoken(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"what is HTTP?\r\n\r\n")
    writer.close()


async def tried(
    hooks: WebhookDeliveries, receiver: UpstreamServer, answer: Answer
) -> dict[str, object]:
    """The log's entry of a delivery after one try that was answered so."""
    receiver.answer = answer
    ticket = await hooks.ended(receiver.url())
    async with hooks.deliverer(post_seconds_max=5) as deliverer:
        await hooks.deliver_due(deliverer)
    assert len(receiver.requests) == 1
    return await hooks.delivery_of(ticket)


@pytest.mark.parametrize("line", ["200 OK", "201 Created", "204 No Content", "299 Fine"])
async def test_any_2xx_is_a_delivery(
    hooks: WebhookDeliveries, receiver: UpstreamServer, line: str
) -> None:
    item = await tried(hooks, receiver, status(line))
    assert (item["status"], item["tries"]) == ("delivered", 1)
    assert item["last_status_code"] == int(line[:3])
    assert item["next_try_at"] is None
    assert item["last_error"] is None


@pytest.mark.parametrize("answer", [half_an_answer, endless])
async def test_a_2xx_is_a_delivery_whatever_follows_it(
    hooks: WebhookDeliveries, receiver: UpstreamServer, answer: Answer
) -> None:
    assert (await tried(hooks, receiver, answer))["status"] == "delivered"
    await receiver.until_left()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (status("500 Oops"), 500),
        (status("400 No"), 400),
        (status("404 Nothing"), 404),
        (status("302 Found", Location="/elsewhere"), 302),
        (status("304 Same"), 304),
        (broken, None),
        (unspoken, None),
    ],
)
async def test_anything_else_is_tried_again(
    hooks: WebhookDeliveries, receiver: UpstreamServer, answer: Answer, code: int | None
) -> None:
    item = await tried(hooks, receiver, answer)
    assert (item["status"], item["tries"], item["last_status_code"]) == ("pending", 1, code)
    assert item["last_error"]
    assert [request.target for request in receiver.requests] == ["/"], "no redirect is followed"


async def test_a_receiver_that_does_not_answer_in_time_has_failed(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    never = asyncio.Event()
    receiver.answer = held(never)
    ticket = await hooks.ended(receiver.url())
    async with hooks.deliverer(post_seconds_max=0.2) as deliverer:
        await hooks.deliver_due(deliverer)
    item = await hooks.delivery_of(ticket)
    assert (item["status"], item["last_error"]) == ("pending", "no answer within 0.2 seconds")


async def test_nobody_there_is_a_failure(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    ticket = await hooks.ended("http://127.0.0.1:1/")
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    item = await hooks.delivery_of(ticket)
    assert (item["status"], item["last_error"]) == ("pending", "the connection failed")


async def test_the_schedule_is_kept_and_then_it_is_exhausted(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    receiver.answer = status("500 Oops")
    ticket = await hooks.ended(receiver.url())
    async with hooks.deliverer() as deliverer:
        for seconds in RETRY_SECONDS:
            await hooks.deliver_due(deliverer)
            item = await hooks.delivery_of(ticket)
            wait = _moment(item["next_try_at"]) - _moment(item["last_try_at"])
            least = timedelta(seconds=seconds)
            assert least <= wait <= least * (1 + RETRY_JITTER)
            await hooks.deliver_due(deliverer)  # not yet
            assert len(receiver.requests) == item["tries"]
            await hooks.make_due()
        await hooks.deliver_due(deliverer)
        item = await hooks.delivery_of(ticket)
        assert (item["status"], item["tries"]) == ("exhausted", TRIES_MAX)
        await hooks.make_due()
        await hooks.deliver_due(deliverer)
    assert len(receiver.requests) == TRIES_MAX
    assert ids_of(receiver) == [item["id"]] * TRIES_MAX, "the id never changes"


@pytest.mark.parametrize("line", ["429 Slower", "503 Later"])
async def test_a_receiver_that_asks_for_peace_has_it_for_all_that_waits(
    hooks: WebhookDeliveries, receiver: UpstreamServer, line: str
) -> None:
    receiver.answer = in_turn(status(line, Retry_After="1000"), OK)
    first = await hooks.ended(receiver.url())
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
        item = await hooks.delivery_of(first)
        wait = _moment(item["next_try_at"]) - _moment(item["last_try_at"])
        assert wait == timedelta(seconds=1000)
        second = await hooks.ended(receiver.url())
        await hooks.deliver_due(deliverer)
        assert len(receiver.requests) == 1
        assert (await hooks.delivery_of(second))["tries"] == 0
        await hooks.make_due()
        await hooks.deliver_due(deliverer)
        await hooks.deliver_due(deliverer)
    assert (await hooks.delivery_of(first))["status"] == "delivered"
    assert (await hooks.delivery_of(second))["status"] == "delivered"


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("1", 5, 6), ("99999999", 86_400, 86_400), ("soon", 5, 6)],
)
async def test_what_a_receiver_asks_for_has_bounds(
    hooks: WebhookDeliveries, receiver: UpstreamServer, asked: str, least: int, most: int
) -> None:
    item = await tried(hooks, receiver, status("429 Slower", Retry_After=asked))
    wait = _moment(item["next_try_at"]) - _moment(item["last_try_at"])
    assert timedelta(seconds=least) <= wait <= timedelta(seconds=most)


async def test_retry_after_means_nothing_with_other_statuses(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    item = await tried(hooks, receiver, status("500 Oops", Retry_After="1000"))
    wait = _moment(item["next_try_at"]) - _moment(item["last_try_at"])
    assert wait <= timedelta(seconds=6)


async def test_410_ends_all_that_waits_for_it_until_it_is_named_again(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    receiver.answer = in_turn(status("410 Gone"), OK)
    later = datetime.now(UTC) + timedelta(hours=1)
    first = await hooks.put(receiver.url())
    waiting = await hooks.put(receiver.url(), due_at=later)
    elsewhere = await hooks.put(receiver.url("/elsewhere"), due_at=later)
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
        await deliverer.tick()
        assert await hooks.status_of(first) == "disabled"
        assert await hooks.status_of(waiting) == "disabled"
        assert await hooks.status_of(elsewhere) == "pending"

        again = await hooks.ended(receiver.url())
        await hooks.deliver_due(deliverer)
    assert (await hooks.delivery_of(again))["status"] == "delivered"
    assert len(receiver.requests) == 2


async def test_what_is_told_later_to_one_that_is_gone_is_ended_too(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    receiver.answer = status("410 Gone")
    waiting = await hooks.submit(receiver.url(), delay=3_600)
    first = await hooks.ended(receiver.url())
    hooks.deployment.start_maintenance()
    async with hooks.delivering():
        await hooks.until(first, "disabled")
        await hooks.deployment.engine.cancel(waiting.id)
        item = await hooks.until(waiting, "disabled")
    assert item["last_error"] == "the receiver answered 410 before"
    assert len(receiver.requests) == 1


async def test_a_replay_is_the_same_message_once_more(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    receiver.answer = in_turn(status("410 Gone"), OK)
    ticket = await hooks.ended(receiver.url())
    secret = (await hooks.secret())["secret"]
    async with hooks.deliverer() as deliverer:
        for ended in ("disabled", "delivered"):
            await hooks.deliver_due(deliverer)
            item = await hooks.delivery_of(ticket)
            assert item["status"] == ended
            again = await hooks.replay(item["id"])
            assert (again["status"], again["tries"]) == ("pending", 0)
        await hooks.deliver_due(deliverer)
    assert ids_of(receiver) == [item["id"]] * 3
    bodies = [verified(request, secret) for request in receiver.requests]
    assert bodies[0] == bodies[1] == bodies[2]


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text))
