"""What goes wrong on demand, as a caller sees it."""

from __future__ import annotations

from pathlib import Path

import httpx2
import psutil
import pytest

from examples.tts_remote import Fault, TtsRemote
from tests.tts_remote.asking import Asking, opened
from tests.waiting import eventually_async

MIB = 1 << 20


async def test_an_error_comes_with_its_status_and_headers_so_many_times(
    remote: TtsRemote, asking: Asking
) -> None:
    job_id = await asking.submit()
    await asking.ended(job_id)
    remote.plan(
        Fault("error", times=2, path="/job-status", status=404, headers={"Retry-After": "7"})
    )
    named = {"job_id": job_id}
    answers = [await asking.http.get("/job-status", params=named) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [404, 404, 200]
    assert answers[0].headers["retry-after"] == "7"
    assert remote.seen.faults == {"error": 2}


async def test_a_lost_answer_leaves_a_job_that_the_token_finds(
    remote: TtsRemote, asking: Asking
) -> None:
    remote.plan(Fault("lost_answer", path="/submit-job"))
    with pytest.raises(httpx2.RemoteProtocolError):
        await asking.submit(token="one")
    (job_id,) = remote.jobs.all()
    assert await asking.submit(token="one") == job_id
    assert (await asking.ended(job_id))["status"] == "completed"
    assert (remote.seen.jobs_made, remote.seen.jobs_begun) == (1, 1)


async def test_a_cut_before_anything_is_done_leaves_nothing(
    remote: TtsRemote, asking: Asking
) -> None:
    remote.plan(Fault("cut", path="/submit-job"))
    with pytest.raises(httpx2.RemoteProtocolError):
        await asking.submit()
    assert remote.jobs.all() == []


async def test_what_hangs_goes_on_when_the_faults_are_cleared(
    remote: TtsRemote, asking: Asking
) -> None:
    job_id = await asking.submit()
    await asking.ended(job_id)
    remote.plan(Fault("hang", path="/job-status", times=None))
    with pytest.raises(httpx2.ReadTimeout):
        await asking.http.get("/job-status", params={"job_id": job_id}, timeout=0.05)
    remote.clear_faults()
    assert (await asking.status(job_id))["status"] == "completed"


async def test_a_slow_answer_comes(remote: TtsRemote, asking: Asking) -> None:
    remote.plan(Fault("slow", path="/submit-job", seconds=0.05))
    assert (await asking.ended(await asking.submit()))["status"] == "completed"
    assert remote.seen.faults == {"slow": 1}


async def test_a_long_job_ends(remote: TtsRemote, asking: Asking) -> None:
    remote.plan(Fault("long_job", seconds=0.05))
    assert (await asking.ended(await asking.submit()))["status"] == "completed"
    assert remote.seen.faults == {"long_job": 1}


async def test_garbage_is_neither_json_nor_a_wav(remote: TtsRemote, asking: Asking) -> None:
    job_id = await asking.submit()
    await asking.ended(job_id)
    remote.plan(Fault("garbage", times=2))
    with pytest.raises(ValueError, match="Expecting value"):
        await asking.status(job_id)
    assert (await asking.result(job_id)).content.startswith(b"<html>")


async def test_a_result_is_cut_after_so_many_bytes(remote: TtsRemote, asking: Asking) -> None:
    job_id = await asking.submit()
    await asking.ended(job_id)
    remote.plan(Fault("cut", path="/job-result", after_bytes=1_000))
    received = 0
    with pytest.raises(httpx2.RemoteProtocolError):  # noqa: PT012
        async with asking.http.stream("GET", "/job-result", params={"job_id": job_id}) as answer:
            async for piece in answer.aiter_raw():
                received += len(piece)
    assert received == 1_000
    assert (await asking.result(job_id)).status_code == 200


@pytest.mark.parametrize("with_length", [True, False])
async def test_a_huge_result_is_streamed_and_never_in_memory(
    remote: TtsRemote, asking: Asking, with_length: bool
) -> None:
    job_id = await asking.submit()
    await asking.ended(job_id)
    size = 192 * MIB
    remote.plan(Fault("huge", size_bytes=size, with_length=with_length))
    before, received = psutil.Process().memory_info().rss, 0
    async with asking.http.stream("GET", "/job-result", params={"job_id": job_id}) as answer:
        assert ("content-length" in answer.headers) == with_length
        async for piece in answer.aiter_raw():
            received += len(piece)
    assert received == size
    assert psutil.Process().memory_info().rss - before < 64 * MIB


async def test_a_huge_result_is_two_gibibytes_unless_told_and_ends_with_its_caller(
    remote: TtsRemote, asking: Asking
) -> None:
    job_id = await asking.submit()
    await asking.ended(job_id)
    remote.plan(Fault("huge"))
    async with asking.http.stream("GET", "/job-result", params={"job_id": job_id}) as answer:
        assert answer.headers["content-length"] == str(2 << 30)
        async for piece in answer.aiter_raw():
            assert piece.startswith(b"RIFF")
            break
    assert opened((await asking.result(job_id)).content).getnframes() > 0


async def test_it_goes_away_when_it_is_asked_and_comes_back(
    remote: TtsRemote, asking: Asking
) -> None:
    remote.plan(Fault("go_away", path="/submit-job"))
    with pytest.raises(httpx2.TransportError):
        await asking.submit(token="one")
    with pytest.raises(httpx2.ConnectError):
        await asking.submit(token="one")
    assert remote.jobs.all() == []
    await remote.come_back()
    assert (await asking.ended(await asking.submit(token="one")))["status"] == "completed"


async def test_it_is_steered_from_outside(
    tmp_path: Path, remote: TtsRemote, asking: Asking
) -> None:
    http = asking.http
    planned = {"kind": "failed_job", "message": "no luck"}
    assert (await http.post("/control/faults", json=planned)).status_code == 200
    job_id = await asking.submit()
    assert (await asking.ended(job_id))["error"] == "no luck"
    assert (await http.post("/control/faults", json={"kind": "odd"})).status_code == 400
    assert (await http.get("/control/odd")).status_code == 404

    tuned = await http.patch("/control/tuning", json={"job_seconds": 0.01})
    assert tuned.json()["job_seconds"] == remote.tuning.job_seconds == 0.01
    assert (await http.patch("/control/tuning", json={"voices": 3})).status_code == 400

    seen = (await http.get("/control/seen")).json()
    assert (seen["jobs_made"], seen["jobs_ended"]) == (1, {"failed": 1})
    assert (await http.get("/control/jobs")).json() == {"jobs": [await asking.status(job_id)]}
    await http.delete("/control/seen")
    assert remote.seen.jobs_made == 0

    assert (await http.post("/control/go_away", json={"seconds": 0.2})).status_code == 202

    async def back() -> bool:
        try:
            return (await http.get("/control/seen")).status_code == 200
        except httpx2.TransportError:
            return False

    await eventually_async(back, "it is back")
