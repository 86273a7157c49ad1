"""Jobs whose work a remote does: a server that speaks, and keeps its own jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from coatcheck import Lane
from coatcheck.domain.remote_work import OperatorRemote
from examples.tts_remote import Fault, TtsRemote
from tests.databases import Databases
from tests.deployment import Deployment
from tests.markdown import pages
from tests.products.batches import asking as batches
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, problem
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUIDE = "run-functions-on-a-remote"
KEY = "the-remotes-own-key"
SLOTS = 2
HELLO = {"text": "hello", "language": "en"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def speaker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TtsRemote]:
    async with TtsRemote(tmp_path_factory.mktemp("remote"), bearer=KEY) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def remote(speaker: TtsRemote) -> AsyncIterator[TtsRemote]:
    """The remote, with nothing seen and nothing going wrong."""
    speaker.seen.reset()
    yield speaker
    speaker.clear_faults()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory, speaker: TtsRemote
) -> AsyncIterator[Deployment]:
    """A deployment with a service that the remote does the work of, and a worker with a few slots.
    The remote is told where to call back."""
    async with (
        databases.fresh() as dsn,
        Deployment(
            dsn,
            tmp_path_factory.mktemp("deployment"),
            lane_concurrency=dict.fromkeys(Lane, SLOTS),
            remotes={"speaker": of_operator(speaker)},
        ) as opened,
    ):
        opened.settings = replace(opened.settings, public_url=str(opened.http.base_url))
        answer = await opened.http.put(paths.hosted("voice"), json=document(speaker))
        assert answer.status_code == 200, answer.text
        await opened.start_remote_worker()
        opened.start_maintenance()
        yield opened


def of_operator(speaker: TtsRemote) -> OperatorRemote:
    target = {"kind": "remote", "adapter": "http", "url": speaker.url, "secret": "key"}
    return OperatorRemote(target=target, secrets={"key": KEY})


def document(speaker: TtsRemote) -> dict[str, Any]:
    target = {
        "type": "remote",
        "adapter": "http",
        "url": speaker.url,
        "secret": "key",
        "secrets": {"key": KEY},
    }
    endpoints = [
        {"method": "POST", "path": path, "target": target, "retries": retries, "timeout": timeout}
        for path, retries, timeout in (
            ("/once", None, 300),
            ("/speak", 0, 300),
            ("/speak/{language}", 1, 300),
            ("/hurry", 0, 0.5),
        )
    ]
    return {"versions": {"1": {"endpoints": endpoints}}}


async def hand_in(
    http: httpx2.AsyncClient, path: str = "/speak", body: Any = None
) -> dict[str, Any]:
    answer = await http.post(paths.submit(path, "voice"), json=HELLO if body is None else body)
    assert answer.status_code == 202, answer.text
    ticket: dict[str, Any] = answer.json()
    return ticket


async def spawned(http: httpx2.AsyncClient, ticket: dict[str, Any]) -> dict[str, Any]:
    """The job once the remote has it."""

    async def look() -> dict[str, Any] | None:
        job: dict[str, Any] = (await http.get(ticket["poll_url"])).json()
        return job if job["execution_id"] is not None else None

    found: dict[str, Any] = await eventually_async(look, "the job is spawned")
    return found


async def speech_of(deployment: Deployment, job: dict[str, Any]) -> bytes:
    """What the job's one artifact holds."""
    (artifact,) = await deployment.engine.artifacts(job["id"], org="default")
    assert artifact.name == job["result_summary"]["artifact"]
    return b"".join([piece async for piece in deployment.engine.read_artifact(artifact)])


async def test_the_remote_does_the_work_and_its_result_is_kept(
    deployment: Deployment, remote: TtsRemote
) -> None:
    job = await end_of(deployment.http, await hand_in(deployment.http))
    (asked,) = remote.seen.bodies("/submit-job")
    (spoken,) = [each for each in remote.seen.requests if each.path == "/submit-job"]
    assert (job["status"], job["execution_mode"], job["execution_id"]) == (
        "completed",
        "persistent",
        spoken.job_id,
    )
    assert spoken.headers["authorization"] == f"Bearer {KEY}"
    sent = json.loads(asked)
    assert {name: sent[name] for name in HELLO} == HELLO
    assert sent["callback_url"].startswith(f"{deployment.http.base_url}/v1/remote-callbacks/")
    speech = await speech_of(deployment, job)
    assert speech[:4] == b"RIFF"
    assert job["result_summary"] == {
        "media_type": "audio/wav",
        "bytes": len(speech),
        "artifact": "remote-result",
    }
    assert (remote.seen.jobs_made, remote.seen.jobs_found) == (1, 0)
    assert job["attempt_count"] == 1
    fetched = await deployment.http.get(f"{paths.job(job['id'], 'voice')}/artifacts/remote-result")
    assert (fetched.content, fetched.headers["content-type"]) == (speech, "audio/wav")
    assert 'filename="remote-result.wav"' in fetched.headers["content-disposition"]


async def test_a_synchronous_call_is_answered_with_what_the_remote_made(
    deployment: Deployment, remote: TtsRemote
) -> None:
    answer = await deployment.http.post(paths.call("/speak/en", "voice"), json={"text": "hello"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
    assert answer.content[:4] == b"RIFF"
    assert json.loads(remote.seen.bodies("/submit-job")[0])["language"] == "en"
    job = (await deployment.http.get(answer.links["job"]["url"])).json()
    assert (job["status"], job["endpoint_key"]) == ("completed", "post__speak_language")


async def test_the_document_of_the_guide_is_one_that_works(
    deployment: Deployment, remote: TtsRemote
) -> None:
    (page,) = [each for each in pages("docs/how-to") if each.path.stem == GUIDE]
    written = page.blocks("json")[0].text.replace("http://127.0.0.1:8900", remote.url)
    answer = await deployment.http.put(paths.hosted("guided"), json=json.loads(written))
    assert answer.status_code == 200, answer.text
    answer = await deployment.http.post(paths.call("/speak", "guided"), json=HELLO)
    assert (answer.status_code, answer.content[:4]) == (200, b"RIFF")


async def test_a_remote_that_the_operator_has_set_up_is_used_by_its_name(
    deployment: Deployment, remote: TtsRemote
) -> None:
    target = {"type": "remote", "adapter": "operator", "name": "speaker", "secrets": {}}
    endpoint = {"method": "POST", "path": "/speak", "target": target}
    document = {"versions": {"1": {"endpoints": [endpoint]}}}
    shown = await deployment.http.put(paths.hosted("lent"), json=document)
    assert shown.status_code == 200, shown.text
    assert shown.json()["definition"]["versions"]["1"]["endpoints"][0]["target"] == target
    assert KEY not in shown.text
    answer = await deployment.http.post(paths.call("/speak", "lent"), json=HELLO)
    assert (answer.status_code, answer.content[:4]) == (200, b"RIFF")
    assert remote.seen.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_what_fails_over_there_has_failed(deployment: Deployment, remote: TtsRemote) -> None:
    remote.plan(Fault("failed_job", message="no voice today"))
    answer = await deployment.http.post(paths.call("/once", "voice"), json=HELLO)
    assert "no voice today" in problem(answer, 502, "remote_failed")["detail"]
    assert remote.seen.jobs_made == 1


async def test_tasks_that_fail_over_there_are_tried_again_if_their_batch_asks_for_it(
    deployment: Deployment, remote: TtsRemote
) -> None:
    for asked_for, status in (({}, "failed"), ({"retries": 1}, "succeeded")):
        remote.plan(Fault("failed_job"))
        ordered = await batches.submit(
            deployment.http, [HELLO], service="voice", endpoint="/once", **asked_for
        )
        (task,) = await batches.tasks_of(
            deployment.http, await batches.end_of(deployment.http, ordered)
        )
        assert task["status"] == status
    assert remote.seen.jobs_made == 3


async def test_what_fails_over_there_is_tried_again_as_new_work_if_the_endpoint_has_retries(
    deployment: Deployment, remote: TtsRemote
) -> None:
    remote.plan(Fault("failed_job", message="no voice today"))
    job = await end_of(
        deployment.http, await hand_in(deployment.http, "/speak/en", {"text": "hello"})
    )
    assert (job["status"], job["attempt_count"]) == ("completed", 2)
    first, second = [each.job_id for each in remote.seen.requests if each.path == "/submit-job"]
    assert first != second == job["execution_id"]


async def test_what_fails_for_the_last_time_says_what_the_remote_said(
    deployment: Deployment, remote: TtsRemote
) -> None:
    remote.plan(Fault("failed_job", message="no voice today"))
    answer = await deployment.http.post(paths.call("/speak", "voice"), json=HELLO)
    assert "no voice today" in problem(answer, 502, "max_retries_exhausted")["detail"]


async def test_a_job_that_is_cancelled_is_cancelled_at_the_remote(
    deployment: Deployment, remote: TtsRemote
) -> None:
    remote.plan(Fault("stuck_job"))
    ticket = await hand_in(deployment.http)
    job = await spawned(deployment.http, ticket)
    assert job["status"] == "processing"
    answer = await deployment.http.post(ticket["cancel_url"])
    # 202 if the poller looks at this very moment: then it does it.
    assert answer.status_code in (200, 202)
    ended = await end_of(deployment.http, ticket)
    assert (ended["status"], ended["execution_id"]) == ("cancelled", job["execution_id"])
    assert remote.seen.jobs_ended["cancelled"] == 1
    problem(await deployment.http.post(ticket["cancel_url"]), 409, "job_already_ended")


async def test_jobs_that_run_elsewhere_hold_no_slot(
    deployment: Deployment, remote: TtsRemote
) -> None:
    count = 4 * SLOTS
    remote.plan(Fault("stuck_job", times=count))
    stuck = [await hand_in(deployment.http) for _ in range(count)]
    for ticket in stuck:
        await spawned(deployment.http, ticket)
    job = await end_of(deployment.http, await hand_in(deployment.http))
    assert job["status"] == "completed"
    remote.clear_faults()
    ended = [await end_of(deployment.http, ticket) for ticket in stuck]
    assert {each["status"] for each in ended} == {"completed"}
    assert len({each["execution_id"] for each in ended}) == count


async def test_a_runs_its_tasks_at_the_remote(deployment: Deployment, remote: TtsRemote) -> None:
    tasks = [{"custom_id": str(number), "input": HELLO} for number in range(20)]
    job = await batches.end_of(
        deployment.http,
        await batches.submit(deployment.http, tasks, service="voice", endpoint="/speak"),
    )
    assert job["counts"]["succeeded"] == 20
    found = await batches.tasks_of(deployment.http, job)
    assert {task["result"]["artifact"] for task in found} == {"remote-result"}
    whole = await deployment.http.get(found[0]["urls"]["poll"])
    assert whole.json()["input"] == HELLO
    assert KEY not in whole.text
    files = (await deployment.http.get(found[0]["urls"]["artifacts"])).json()["items"]
    assert [each["name"] for each in files] == ["remote-result"]
    assert (remote.seen.jobs_made, remote.seen.paths["/job-result"]) == (20, 20)


async def test_a_task_that_takes_too_long_is_cancelled_at_the_remote(
    deployment: Deployment, remote: TtsRemote
) -> None:
    remote.plan(Fault("stuck_job"))
    ordered = await batches.submit(deployment.http, [HELLO], service="voice", endpoint="/hurry")
    job = await batches.end_of(deployment.http, ordered)
    (task,) = await batches.tasks_of(deployment.http, job)
    assert (task["status"], task["error"]["code"]) == ("failed", "timed_out")
    assert remote.seen.jobs_ended["cancelled"] == 1


async def test_callbacks_and_polls_race_to_one_end(
    deployment: Deployment, remote: TtsRemote
) -> None:
    remote.plan(Fault("stuck_job"))
    ticket = await hand_in(deployment.http)
    await spawned(deployment.http, ticket)
    url = json.loads(remote.seen.bodies("/submit-job")[0])["callback_url"]
    remote.clear_faults()
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as stranger:
        bodies = [b"", b"done", b"\xff", b'{"status": "failed"}'] * 3
        answers = await asyncio.gather(*(stranger.post(url, content=body) for body in bodies))
        assert {answer.status_code for answer in answers} == {202}
        job = await end_of(deployment.http, ticket)
        assert job["status"] == "completed"
        assert (await stranger.post(url, content=b"again")).status_code == 202
    assert (await deployment.http.get(ticket["poll_url"])).json() == job
    assert (await speech_of(deployment, job))[:4] == b"RIFF"
    assert remote.seen.paths["/job-result"] == 1


async def test_a_callback_that_nobody_signed_is_not_known(
    deployment: Deployment, remote: TtsRemote
) -> None:
    await end_of(deployment.http, await hand_in(deployment.http))
    url = json.loads(remote.seen.bodies("/submit-job")[0])["callback_url"]
    for wrong in (url[:-1] + ("A" if url[-1] != "A" else "B"), url.rpartition("/")[0] + "/x"):
        problem(await deployment.http.post(wrong, content=b"done"), 404, "not_found")
    too_long = b" " * (1024 * 1024 + 1)
    problem(await deployment.http.post(url, content=too_long), 413, "body_too_large")
