"""Collecting a chat: while it waits, while it runs, and once it is done."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from coatcheck.db.connection import RawConnection
from coatcheck.domain.ids import from_text
from coatcheck.domain.tenants import USER_SCOPES, Scope
from coatcheck.products.llm import repository
from tests.db.rows import recorded
from tests.deployment import Deployment, bearer
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT: dict[str, Any] = {"model": "llama3", "messages": [{"role": "user", "content": "hello"}]}


async def queued(deployment: Deployment, **headers: str) -> str:
    answer = await deployment.http.post("/jobs", json=CHAT, headers=headers)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    return body


async def test_a_job_that_waits_says_so_and_why(waiting: Deployment) -> None:
    job_id = await queued(waiting)
    answer = await waiting.http.get(f"/jobs/{job_id}")
    assert answer.status_code == 200
    assert int(answer.headers["retry-after"]) >= 1
    job = answer.json()
    created_at, why = job.pop("created_at"), job.pop("waiting")
    poll = f"/jobs/{job_id}"
    assert job == {
        "job_id": job_id,
        "state": "queued",
        "model": "llama3:latest",
        "attempt": 0,
        "error": None,
        "artifacts": [],
        "target": None,
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "terminal": False,
        "urls": {"poll": poll, "events": f"{poll}/events", "cancel": f"{poll}/cancel"},
        "result": None,
    }
    assert created_at.endswith("Z")
    assert (why["reason"], why["since"], why["next_try_at"]) == ("queue", created_at, None)
    assert why["detail"]


async def test_a_job_nobody_has_taken_says_that_no_target_can_be_reached(
    waiting: Deployment,
) -> None:
    job_id = await queued(waiting)
    line = waiting.context.tenants
    # One that is set no more says nothing of those that are.
    await repository.mark_unreachable(line, "of old", "it was taken away", 30.0)
    assert await why(waiting, job_id, "queue")
    await repository.mark_unreachable(line, "default", "connection refused", 30.0)
    said = await why(waiting, job_id, "target_unreachable")
    assert "connection refused" in said["detail"]
    assert said["detail"].startswith("No target can be reached;")
    assert said["since"] < said["next_try_at"]
    await repository.mark_reachable(line, "default")
    assert await why(waiting, job_id, "queue")


async def test_a_job_whose_target_was_away_does_not_say_so_of_all_of_them(
    waiting: Deployment,
) -> None:
    job_id = await queued(waiting)

    async def attempt(connection: RawConnection) -> None:
        async with connection.transaction():
            for change in (
                "state = 'dispatching', lease = 1",
                "state = 'retrying', lease = NULL, run_at = now() + interval '1 hour', "
                "error_code = 'target_unreachable', error_message = 'It did not answer.'",
            ):
                await connection.execute(
                    recorded(f"UPDATE jobs SET {change} WHERE id = $1"), from_text(job_id)
                )

    await waiting.context.tenants.run(attempt)
    said = await why(waiting, job_id, "target_unreachable")
    assert said["detail"] == (
        "Its target could not be reached; no attempt is spent. It did not answer."
    )


async def why(deployment: Deployment, job_id: str, reason: str) -> dict[str, Any]:
    """What the job says of its waiting, once that is for this reason."""

    async def look() -> dict[str, Any] | None:
        said: dict[str, Any] = (await deployment.http.get(f"/jobs/{job_id}")).json()["waiting"]
        return said if said["reason"] == reason else None

    found: dict[str, Any] = await eventually_async(look, f"it waits for {reason}")
    return found


async def test_a_waiting_job_is_cancelled_at_once_and_only_once(waiting: Deployment) -> None:
    job_id = await queued(waiting)
    answer = await waiting.http.post(f"/jobs/{job_id}/cancel")
    assert answer.status_code == 200
    job = answer.json()
    assert (job["state"], job["terminal"], job["waiting"]) == ("failed", True, None)
    assert job["error"]["code"] == "cancelled"
    assert job["error"]["message"]
    problem(await waiting.http.post(f"/jobs/{job_id}/cancel"), 409, "job_already_ended")


async def test_jobs_are_listed_page_by_page_newest_first(waiting: Deployment) -> None:
    caller = bearer(await waiting.create_key(user="lister", scopes=USER_SCOPES))
    made = [await queued(waiting, **caller) for _ in range(5)]
    await waiting.engine.submit("docs.post__x", {}, owner="user:lister")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = (await waiting.http.get("/jobs", params=params, headers=caller)).json()
        seen += [item["job_id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == sorted(made, reverse=True)
    item = page["items"][-1]
    assert (item["state"], item["model"], item["terminal"]) == ("queued", "llama3:latest", False)
    assert "result" not in item


async def test_a_list_can_be_of_one_state(waiting: Deployment) -> None:
    caller = bearer(await waiting.create_key(user="chooser", scopes=USER_SCOPES))
    going, ended = await queued(waiting, **caller), await queued(waiting, **caller)
    await waiting.http.post(f"/jobs/{ended}/cancel", headers=caller)

    async def of(state: str) -> list[str]:
        page = await waiting.http.get("/jobs", params={"state": state}, headers=caller)
        return [item["job_id"] for item in page.json()["items"]]

    assert await of("queued") == [going]
    assert await of("failed") == [ended]
    assert await of("done") == await of("working") == await of("loading") == []


async def test_a_list_can_be_of_one_model(waiting: Deployment) -> None:
    caller = bearer(await waiting.create_key(user="picky", scopes=USER_SCOPES))
    made = {}
    for model in ("qwen3:8b", "qwen3:8b-q4", "qwen3"):
        answer = await waiting.http.post("/jobs", json={**CHAT, "model": model}, headers=caller)
        made[model] = answer.json()["job_id"]
    for asked, model in (("qwen3:8b", "qwen3:8b"), ("qwen3:latest", "qwen3")):
        page = await waiting.http.get("/jobs", params={"model": asked}, headers=caller)
        assert [item["job_id"] for item in page.json()["items"]] == [made[model]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "0"),
        ("limit", "201"),
        ("cursor", "x"),
        ("state", "completed"),
        ("model", ""),
        ("other", "1"),
    ],
)
async def test_a_list_is_not_made_of_a_bad_query(
    waiting: Deployment, field: str, value: str
) -> None:
    refused = problem(
        await waiting.http.get("/jobs", params={field: value}), 400, "invalid_parameter"
    )
    assert refused["details"][0]["field"] == field


async def test_submitting_is_not_enough_to_read(waiting: Deployment) -> None:
    submitter = bearer(await waiting.create_key(scopes=[Scope.SUBMIT]))
    job_id = await queued(waiting, **submitter)
    for path in ("/jobs", f"/jobs/{job_id}", f"/jobs/{job_id}/events"):
        problem(await waiting.http.get(path, headers=submitter), 403, "missing_scope")
