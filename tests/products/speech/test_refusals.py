"""Who is not let in, what is not taken, and what is told to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from coatcheck.db.connection import Connection
from coatcheck.domain.ids import from_text
from coatcheck.domain.remote_work import decode_work
from tests.databases import Databases
from tests.deployment import Deployment
from tests.products.gateway.tokens import MACHINES, USERS
from tests.products.speech.speech_deployment import SpeechDeployment, speech_deployment

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLIC_URL = "https://coats.example/api"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def speech(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SpeechDeployment]:
    """One that nobody works in: what is handed in waits."""
    folder = tmp_path_factory.mktemp("speech")
    async with (
        databases.fresh() as dsn,
        speech_deployment(dsn, folder, public_url=PUBLIC_URL) as opened,
    ):
        yield opened


async def test_who_is_no_user_is_told_what_to_send(speech: SpeechDeployment) -> None:
    machine = speech.machine()
    for method, path in [
        ("GET", "/voices"),
        ("POST", "/voices"),
        ("GET", "/tasks"),
        ("GET", "/generations"),
        ("POST", "/generate"),
        ("POST", "/tasks/01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel"),
    ]:
        answer = await speech.http.request(method, path, headers=machine)
        assert (answer.status_code, answer.json()["code"]) == (403, "user_required"), path
        assert "a user's token" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"text": ""}, 422),
        ({"text": " \n"}, 422),
        ({"text": "a" * 10_001}, 422),
        ({"text": 7}, 422),
        ({"language": "english!"}, 422),
        ({"language": "e"}, 422),
        ({"language": None}, 422),
        ({"voice": "mine"}, 400),
        ({"webhook_url": "http://169.254.169.254/"}, 422),
    ],
    ids=str,
)
async def test_what_cannot_be_spoken_is_refused(
    speech: SpeechDeployment, change: dict[str, Any], status: int
) -> None:
    answer = await speech.generate(await speech.voice(), body=change)
    assert answer.status_code == status, answer.text
    assert (await speech.http.get("/tasks", headers=speech.user())).json()["items"] == []


async def test_the_remote_may_hear_the_voice_where_we_are_reached(speech: SpeechDeployment) -> None:
    bob = speech.user("bob")
    task_id = await speech.submitted(bob)
    line = Connection(speech.deployment.settings.database_url, name="tests")
    ((payload,),) = await line.fetch("SELECT payload FROM jobs WHERE id = $1", from_text(task_id))
    await line.close()
    work = decode_work(payload)
    assert (work.to.operator, work.to.secrets_id, work.to.target) == ("speech", "", None)
    body = msgspec.json.decode(work.body)
    assert body["reference_url"].startswith(PUBLIC_URL + "/v1/blobs/")
    path = body["reference_url"].removeprefix(PUBLIC_URL)
    assert (await speech.http.get(path)).content.startswith(b"RIFF")


async def test_without_a_remote_it_is_said_what_to_set(
    databases: Databases, tmp_path: Path
) -> None:
    async with (
        databases.fresh() as dsn,
        Deployment(dsn, tmp_path, jwt_issuers=(USERS, MACHINES)) as deployment,
    ):
        body = {"voice_id": "x", "text": "x", "language": "en"}
        answer = await deployment.http.post("/generate", json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "speech_not_configured")
        assert "COATCHECK_SPEECH_REMOTE_URL" in answer.json()["detail"]
