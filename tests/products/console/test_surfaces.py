"""Jobs of every surface in one list, each in its own words and stopped or done again in its way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tenant_resources import ARCHIVE
from tests.products.console.callers import Caller
from tests.products.console.conftest import NOBODY_LISTENS
from tests.products.graphs.archives import form

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def named(caller: Caller, job_id: str) -> tuple[Any, ...]:
    job = await caller.get(f"jobs/{job_id}")
    return job["surface"], job["service"], job["endpoint"], job["urls"]["surface"]


async def cancelled(caller: Caller, job_id: str) -> Any:
    answer = await caller.post(f"jobs/{job_id}/cancel")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_chat_is_called_by_its_model_and_asked_again(user: Caller) -> None:
    chat = {"model": "llama3", "messages": [{"role": "user", "content": "a canary"}]}
    headers = {"Idempotency-Key": "asked once"}
    handed_in = await user.post("/jobs", chat, headers=headers)
    old = handed_in.json()["job_id"]
    assert await named(user, old) == ("llm", "llm", "chat llama3", f"/jobs/{old}")
    assert await user.listed(q="asked once") == [old], "by the key as its caller said it"
    assert (await cancelled(user, old))["idempotency_key"] is None, (
        "as it is stored, it says nothing"
    )
    assert (await user.get(f"jobs/{old}/input"))["messages"] == chat["messages"]
    new = (await user.post(f"jobs/{old}/retry")).json()
    assert await user.listed(surface="llm") == [new["id"], old]
    shown = await user.get(new["urls"]["surface"])
    assert (shown["model"], shown["terminal"]) == ("llama3:latest", False)


async def test_an_archive_is_not_kept_and_so_its_job_is_not_retried(user: Caller, org: str) -> None:
    headers = {"Idempotency-Key": "an archive"}
    handed_in = await user.ask("POST", "/v1/graphs/call", files=form(ARCHIVE), headers=headers)
    assert handed_in.status_code == 202, handed_in.text
    job_id = handed_in.json()["jobId"]
    place = f"/v1/graphs/jobs/{job_id}"
    assert await named(user, job_id) == ("graphs", "graphs", "call graph", place)
    assert set(await user.get(f"jobs/{job_id}/input")) == {"size", "sha256"}
    job = await cancelled(user, job_id)
    assert (job["input_kept"], job["urls"]["retry"]) == (False, None)
    assert job["urls"]["receipt"] == f"{place}/receipt"
    refused = await user.post(f"jobs/{job_id}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")
    assert "Upload it again" in refused.json()["detail"]
    rows = await user.deployment.context.tenants.fetch(
        "SELECT payload FROM jobs WHERE org_id = $1", org
    )
    assert [row["payload"] for row in rows] == [None]


async def test_a_task_is_read_by_its_id_and_done_again_with_its_batch(user: Caller) -> None:
    order = {"service": "chores", "endpoint": "/sweep", "lane": "standard"}
    batch = (await user.post("/v1/jobs", order | {"tasks": [{"room": "barn"}]})).json()
    tasks = await user.get(f"{batch['urls']['tasks']}")
    hexadecimal = tasks["items"][0]["id"]
    task = await user.wait_for(hexadecimal)
    assert (task["surface"], task["state"]) == ("batches", "failed")
    assert (task["service"], task["endpoint"]) == ("chores", "/sweep")
    assert (task["task_id"], task["batch_id"]) == (hexadecimal, batch["id"])
    assert task["urls"]["batch"] == batch["urls"]["poll"]
    assert (await user.get(task["urls"]["surface"]))["id"] == hexadecimal
    assert (await user.get(f"jobs/{task['id']}"))["task_id"] == hexadecimal, "by either spelling"
    assert await user.get(f"jobs/{hexadecimal}/input") == {"room": "barn"}
    refused = await user.post(f"jobs/{hexadecimal}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")
    assert f"POST /v1/jobs/{batch['id']}/rerun" in refused.json()["detail"]
    assert await user.listed() == [], "tasks are in the lists of their batches"


async def test_the_secrets_of_a_target_are_no_part_of_what_its_caller_handed_in(
    user: Caller, admin: Caller
) -> None:
    target = {"type": "http", "url": NOBODY_LISTENS, "headers": {"X-Secret": "hunter2"}}
    endpoint = {"method": "POST", "path": "/go", "target": target}
    private = {"method": "POST", "path": "/hush", "target": target, "keep_input": False}
    definition = {"versions": {"1": {"endpoints": [endpoint, private]}}}
    path = "workspaces/default/hosted-services/away"
    registered = await admin.ask("PUT", path, json=definition)
    assert registered.status_code == 200, registered.text
    answer = await user.post("services/away/async/go?fast=1", {"to": "the moon"})
    old = answer.json()["job_id"]
    assert (await named(user, old))[:3] == ("gateway", "away", "POST /go")
    await cancelled(user, old)
    given = await user.ask("GET", f"jobs/{old}/input")
    assert given.json() == {
        "method": "POST",
        "url": f"{NOBODY_LISTENS}/go?fast=1",
        "body": {"to": "the moon"},
    }
    assert "hunter2" not in given.text
    new = (await user.post(f"jobs/{old}/retry")).json()
    assert await user.listed(service="away") == [new["id"], old]
    assert await user.listed(endpoint="away.v1.post__go") == [new["id"], old]
    assert (await user.get(f"jobs/{new['id']}/input")) == given.json()
    hushed = (await user.post("services/away/async/hush", {})).json()["job_id"]
    assert (await cancelled(user, hushed))["input_kept"] is False, "its endpoint says so"
