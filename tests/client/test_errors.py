from __future__ import annotations

import pickle
from typing import Any

import pytest

import coatcheck.client
from coatcheck import CoatcheckError
from coatcheck.client import ApiError, ClientError, JobFailed, WaitTimeout
from tests.client.cases import JOB_ID, TICKET, cases, job
from tests.client.conftest import Connect


@cases("errors")
async def test_an_answer_stands_for_this_error(
    connect: Connect, scripted: Any, case: dict[str, Any]
) -> None:
    server = await scripted(case["answer"])
    client = connect(server.url, retries=0)
    with pytest.raises(ApiError) as raised:
        await client.get(JOB_ID, service="docs")
    error = raised.value
    assert type(error) is getattr(coatcheck.client, case["error"])
    assert isinstance(error, ClientError)
    assert isinstance(error, CoatcheckError)
    assert (error.status, error.code) == (case["answer"]["status"], case["code"])
    assert error.message == case["message"]
    assert error.request_id == case.get("request_id")
    assert error.retry_after == case.get("retry_after")
    details = [[detail.field, detail.issue, detail.location] for detail in error.details]
    assert details == case.get("details", [])
    assert "10.0.0.7" not in repr(error)


async def test_an_error_survives_the_way_to_another_process(
    connect: Connect, scripted: Any
) -> None:
    problem = {"code": "missing_scope", "message": "no", "requestId": "r"}
    server = await scripted({"status": 403, "problem": problem})
    with pytest.raises(ApiError) as raised:
        await connect(server.url).get(JOB_ID, service="docs")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert type(copy) is type(raised.value)
    assert str(copy) == str(raised.value) == "403 missing_scope: no (request r)"


async def test_a_failed_job_is_raised_with_the_servers_code(
    connect: Connect, scripted: Any
) -> None:
    error = {"code": "no_mailbox", "message": "there is no such mailbox"}
    failed = job("failed", last_error=error)
    server = await scripted({"status": 202, "json": TICKET}, {"json": failed}, {"json": failed})
    client = connect(server.url)
    handle = await client.submit("docs", "analyze", {})
    with pytest.raises(JobFailed) as raised:
        await client.wait(handle)
    assert (raised.value.code, raised.value.message) == ("no_mailbox", "there is no such mailbox")
    assert raised.value.job is handle
    assert str(raised.value) == (f"job {JOB_ID} is failed: no_mailbox: there is no such mailbox")
    quiet = await client.wait(JOB_ID, service="docs", raise_on_failure=False)
    assert (quiet.status, quiet.error.code) == ("failed", "no_mailbox")


def test_a_timeout_says_which_job_is_how() -> None:
    class Unended:
        id, status = JOB_ID, "processing"

    text = str(WaitTimeout(Unended(), 1.5))  # type: ignore[arg-type]
    assert text == f"job {JOB_ID} is still processing after 1.5 s"
