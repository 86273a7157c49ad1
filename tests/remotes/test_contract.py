"""What every adapter keeps to, against a faithful fake of its service."""

from __future__ import annotations

import io
import logging
import traceback
import tracemalloc

import pytest

from coatcheck.egress import Guard
from coatcheck.remotes import (
    Reattach,
    Remote,
    RemoteCompleted,
    RemoteError,
    RemoteFailed,
    RemoteFaulty,
    RemoteRefused,
    RemoteRunning,
    Remotes,
    RemoteUnclear,
    RemoteUnknown,
    RemoteUnreachable,
    SpawnRequest,
)
from coatcheck.remotes.caller import TEXT_CHARACTERS_MAX, RemoteTimeouts
from coatcheck.settings.egress_allow import parse_allow
from tests.remotes.fake_fal import FakeFal
from tests.remotes.fake_modal import FakeModal
from tests.remotes.fake_replicate import FakeReplicate
from tests.remotes.fake_runpod import FakeRunpod
from tests.remotes.fake_service import FakeService
from tests.remotes.faults import Cut, Garbage, Hang, Status
from tests.waiting import eventually_async

TOKEN = "a1b2c3d4" * 8
CALLBACK = "https://coatcheck.example.com/v1/callbacks/canary-signature?job=1&more=2"
BODY = b'{"text": "Good morning.", "speed": 1.10, "id": 12345678901234567890}'
WAV = b"RIFF" + bytes(range(256)) * 40
HUGE_BYTES = 64 * 1024 * 1024
MEMORY_BYTES_MAX = 16 * 1024 * 1024


def work(token: str = TOKEN) -> SpawnRequest:
    return SpawnRequest(token, BODY)


async def read(remote: Remote, remote_id: str) -> bytes:
    async with await remote.result(remote_id) as result:
        return b"".join([piece async for piece in result])


async def test_work_that_is_spawned_gets_its_input_as_it_was_written(
    service: FakeService, remote: Remote
) -> None:
    remote_id = await remote.spawn(work())

    given = service.sent_input(remote_id)
    assert given["text"] == "Good morning."
    assert given["speed"] == 1.1
    assert given["id"] == 12345678901234567890


async def test_the_same_token_leads_to_the_same_work_as_far_as_the_service_can(
    service: FakeService, remote: Remote
) -> None:
    first = await remote.spawn(work())
    for other in range(4):
        await remote.spawn(work(f"{other}{TOKEN[1:]}"))

    match remote.reattach:
        case Reattach.SAME_TOKEN:
            assert await remote.spawn(work()) == first
            assert len(service.works) == 5
        case Reattach.FIND:
            assert await remote.find(TOKEN) == first
            assert await remote.find("f" * 64) is None
        case Reattach.NONE:
            assert await remote.find(TOKEN) is None


async def test_work_runs_until_it_is_completed_and_then_has_its_result(
    service: FakeService, remote: Remote
) -> None:
    remote_id = await remote.spawn(work())
    assert await remote.status([remote_id]) == {remote_id: RemoteRunning()}

    service.complete(remote_id, WAV)

    assert await remote.status([remote_id]) == {remote_id: RemoteCompleted()}
    async with await remote.result(remote_id) as result:
        assert result.media_type == "audio/wav"
        assert result.length == len(WAV)
        assert b"".join([piece async for piece in result]) == WAV


async def test_a_result_can_be_had_twice(service: FakeService, remote: Remote) -> None:
    remote_id = await remote.spawn(work())
    service.complete(remote_id, WAV)

    assert await read(remote, remote_id) == WAV
    assert await read(remote, remote_id) == WAV


async def test_failed_work_says_why(service: FakeService, remote: Remote) -> None:
    remote_id = await remote.spawn(work())
    service.fail(remote_id, f"no voice called canary; {service.secret}")

    status = (await remote.status([remote_id]))[remote_id]

    assert isinstance(status, RemoteFailed)
    assert status.code == "remote_failed"
    assert "no voice called canary" in status.message
    assert service.secret not in status.message


async def test_an_id_that_the_service_does_not_know_is_unknown_and_never_a_success(
    service: FakeService, remote: Remote
) -> None:
    remote_id = await remote.spawn(work())
    service.forget(remote_id)

    assert await remote.status([remote_id]) == {remote_id: RemoteUnknown()}
    with pytest.raises(RemoteFaulty) as caught:
        await remote.result(remote_id)
    assert caught.value.code == "remote_result_gone"
    await remote.cancel(remote_id)
    assert service.cancelled == []


async def test_many_are_asked_about_at_once_and_each_stands_as_it_does(
    service: FakeService, remote: Remote
) -> None:
    ids = [await remote.spawn(work(f"{number:064x}"[::-1])) for number in range(20)]
    service.complete(ids[3], WAV)
    service.fail(ids[4], "broken")
    service.forget(ids[5])

    found = await remote.status(ids)

    assert list(found) != []
    assert set(found) == set(ids)
    assert found[ids[3]] == RemoteCompleted()
    assert isinstance(found[ids[4]], RemoteFailed)
    assert found[ids[5]] == RemoteUnknown()
    assert [found[one] for one in ids[6:]] == [RemoteRunning()] * 14


async def test_a_broken_answer_about_one_does_not_lose_the_others(
    service: FakeService, remote: Remote
) -> None:
    ids = [await remote.spawn(work(f"{number:064x}"[::-1])) for number in range(10)]
    service.faults.append(Cut())

    found = await remote.status(ids)

    unclear = [status for status in found.values() if isinstance(status, RemoteUnclear)]
    assert len(unclear) == 1
    assert isinstance(unclear[0].error, RemoteFaulty)
    assert list(found.values()).count(RemoteRunning()) == 9


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"status": "dancing"}', b"\xff", b""])
async def test_garbage_for_a_status_is_unclear(
    service: FakeService, remote: Remote, body: bytes
) -> None:
    if isinstance(service, FakeModal):
        pytest.skip("Modal's client reads what comes, not we")
    remote_id = await remote.spawn(work())
    service.faults.append(Garbage(body))

    status = (await remote.status([remote_id]))[remote_id]

    assert isinstance(status, RemoteUnclear)
    assert isinstance(status.error, RemoteFaulty)
    assert status.error.code == "remote_garbage"
    assert await remote.status([remote_id]) == {remote_id: RemoteRunning()}


async def test_garbage_for_a_spawn_is_a_fault_after_which_it_may_be_running(
    service: FakeService, remote: Remote
) -> None:
    service.faults.append(Garbage())

    with pytest.raises(RemoteFaulty) as caught:
        await remote.spawn(work())

    assert caught.value.code == "remote_garbage"
    assert caught.value.perhaps_done


async def test_a_service_that_hangs_is_given_up_in_time(service: FakeService) -> None:
    guard = Guard(parse_allow("127.0.0.1"))
    async with Remotes(guard, timeouts=RemoteTimeouts(call_seconds=0.2)) as impatient:
        remote = service.opened(impatient)
        service.faults.append(Hang())
        with pytest.raises(RemoteFaulty) as caught:
            await remote.spawn(work())
        assert caught.value.code == "remote_hangs"
        assert caught.value.perhaps_done

        ids = [f"hangs-{number}" for number in range(100)]
        service.faults.extend([Hang()] * 100)
        found = await remote.status(ids)

    assert set(found) == set(ids)
    for status in found.values():
        assert isinstance(status, RemoteUnclear)
        assert status.error.code == "remote_hangs"
    assert len(service.faults) > 70, "not each of them was waited for"


async def test_a_lost_connection_is_a_fault_after_which_a_spawn_may_be_running(
    service: FakeService, remote: Remote
) -> None:
    service.faults.append(Cut())

    with pytest.raises(RemoteFaulty) as caught:
        await remote.spawn(work())

    assert caught.value.perhaps_done


async def test_a_huge_result_is_streamed_and_never_held(
    service: FakeService, remote: Remote
) -> None:
    remote_id = await remote.spawn(work())
    service.complete_streaming(remote_id, HUGE_BYTES)
    assert await remote.status([remote_id]) == {remote_id: RemoteCompleted()}

    tracemalloc.start()
    try:
        size = 0
        async with await remote.result(remote_id) as result:
            assert result.length == HUGE_BYTES
            async for piece in result:
                size += len(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size == HUGE_BYTES
    assert peak < MEMORY_BYTES_MAX


async def test_a_result_that_is_not_read_to_its_end_lets_go_of_the_connection(
    service: FakeService, remote: Remote
) -> None:
    remote_id = await remote.spawn(work())
    service.complete_streaming(remote_id, HUGE_BYTES)

    async with await remote.result(remote_id) as result:
        async for _ in result:
            break

    assert service.sent_bytes < HUGE_BYTES


async def test_a_result_that_nobody_reads_lets_go_of_the_connection(
    service: FakeService, remote: Remote
) -> None:
    remote_id = await remote.spawn(work())
    service.complete_streaming(remote_id, HUGE_BYTES)

    async with await remote.result(remote_id):
        before = service.server.open_connections

    async def left() -> bool:
        return service.server.open_connections < before

    await eventually_async(left, "the connection of the result is closed", limit=10)


async def test_a_result_that_breaks_off_is_a_fault(service: FakeService, remote: Remote) -> None:
    remote_id = await remote.spawn(work())
    service.complete(remote_id, WAV)
    service.works[remote_id].cut_after = 100

    with pytest.raises(RemoteFaulty) as caught:
        await read(remote, remote_id)

    assert caught.value.code == "remote_broke_off"
    service.works[remote_id].cut_after = None
    assert await read(remote, remote_id) == WAV


async def test_cancelled_work_is_cancelled_over_there(service: FakeService, remote: Remote) -> None:
    remote_id = await remote.spawn(work())

    await remote.cancel(remote_id)

    assert service.cancelled == [remote_id]
    assert isinstance((await remote.status([remote_id]))[remote_id], RemoteFailed)
    await remote.cancel(remote_id)


async def test_a_service_that_cannot_be_reached_has_done_nothing(
    service: FakeService, remotes: Remotes, dead_port: int
) -> None:
    remote = service.opened(remotes, service.unreachable_definition(dead_port))

    with pytest.raises(RemoteUnreachable) as caught:
        await remote.spawn(work())
    assert not caught.value.perhaps_done
    with pytest.raises(RemoteUnreachable):
        await remote.cancel("x1")
    with pytest.raises(RemoteUnreachable):
        await remote.result("x1")
    found = await remote.status(["x1", "x2", "x3"])
    assert {type(status) for status in found.values()} == {RemoteUnclear}
    for status in found.values():
        assert isinstance(status, RemoteUnclear)
        assert isinstance(status.error, RemoteUnreachable)


async def test_a_refusal_is_for_good_and_a_fault_is_not(
    service: FakeService, remote: Remote
) -> None:
    service.faults.append(Status(403))
    with pytest.raises(RemoteRefused) as refused:
        await remote.spawn(work())
    assert not refused.value.perhaps_done

    service.faults.append(Status(500))
    with pytest.raises(RemoteFaulty) as broken:
        await remote.spawn(work())
    assert broken.value.perhaps_done


async def test_retry_after_is_passed_on(service: FakeService, remote: Remote) -> None:
    if isinstance(service, FakeModal):
        pytest.skip("Modal's client waits by itself")
    service.faults.append(Status(429, retry_after="7"))
    with pytest.raises(RemoteFaulty) as caught:
        await remote.spawn(work())
    assert caught.value.retry_after == 7.0
    assert not caught.value.perhaps_done

    service.faults.append(Status(503, retry_after="86400"))
    with pytest.raises(RemoteFaulty) as caught:
        await remote.spawn(work())
    assert caught.value.retry_after == 3_600.0


async def test_services_on_the_internet_are_given_no_callback_without_tls(
    service: FakeService, remote: Remote
) -> None:
    url = CALLBACK.replace("https://", "http://")
    remote_id = await remote.spawn(SpawnRequest(TOKEN, BODY, url))

    on_the_internet = isinstance(service, (FakeFal, FakeReplicate, FakeRunpod))
    assert service.works[remote_id].callback_url == (None if on_the_internet else url)


async def test_a_callback_url_is_handed_over(service: FakeService, remote: Remote) -> None:
    remote_id = await remote.spawn(SpawnRequest(TOKEN, BODY, CALLBACK))

    assert service.works[remote_id].callback_url == CALLBACK


@pytest.mark.parametrize("code", [400, 401, 422, 500, 503])
async def test_no_error_and_no_log_line_has_a_secret_although_the_service_repeats_it(
    service: FakeService, remote: Remote, log: io.StringIO, code: int
) -> None:
    service.faults.append(Status(code))
    with pytest.raises(RemoteError) as caught:
        await remote.spawn(SpawnRequest(TOKEN, BODY, CALLBACK))
    logging.getLogger("coatcheck.tests").warning("the log works", exc_info=caught.value)

    text = str(caught.value)
    assert len(text) <= TEXT_CHARACTERS_MAX
    assert text.isprintable()
    assert "canary" not in text
    assert "the log works" in log.getvalue()
    assert "canary" not in log.getvalue()
    assert "canary" not in "".join(traceback.format_exception(caught.value))


async def test_who_logs_in_with_a_wrong_secret_is_refused(
    service: FakeService, remotes: Remotes
) -> None:
    if isinstance(service, FakeModal):
        pytest.skip("logging in is Modal's client's")
    remote = remotes.open(service.definition(), secret=lambda _: "canary-wrong")

    with pytest.raises(RemoteRefused) as caught:
        await remote.spawn(work())

    assert caught.value.code == "remote_http_401"


async def test_neither_a_remote_nor_a_request_shows_a_secret(
    service: FakeService, remote: Remote
) -> None:
    assert "canary" not in repr(remote)
    assert "canary" not in repr(SpawnRequest(TOKEN, b'"canary"', CALLBACK))
